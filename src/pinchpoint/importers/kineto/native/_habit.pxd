# What stood between two values of the event before. A recorder writes events of one category
# alike, so the text from the end of a value to the beginning of the next one (comma, blanks, key,
# colon) is nearly always what it was the last time: one comparison then replaces reading it.

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from pinchpoint.importers.kineto.native._keys cimport Key
from pinchpoint.importers.kineto.native._text cimport Bytes, word

cdef enum:
    STEPS = 64  # of an event; later ones overwrite the first
    HABITS = 16
    LONGEST_STEP = 40
    READABLE = 48  # bytes that a comparison may look at


cdef struct Step:
    uint8_t text[READABLE]
    int length  # 0: nothing is known
    bint inside  # of the arguments
    bint opens  # the arguments; the text then ends with their bracket
    uint64_t last  # the bytes of the last word that count
    Key* key


cdef struct Habit:
    Step step[STEPS]


cdef inline bint follows(const Step* step, Bytes p, Bytes e, bint inside) noexcept nogil:
    # whether the text at p is that of the step
    cdef int at = 0
    if step.length == 0 or step.inside != inside or e - p <= READABLE:
        return False
    while at + 8 < step.length:
        if word(p + at) != word(step.text + at):
            return False
        at += 8
    if (word(p + at) ^ word(step.text + at)) & step.last:
        return False
    return step.opens or p[step.length] > 32


cdef inline void learn(
    Step* step, Bytes p, int64_t length, Key* key, bint inside, bint opens
) noexcept nogil:
    # remember the text at p
    step.length = 0
    if length > LONGEST_STEP:
        return
    memcpy(step.text, p, length)
    step.length = <int>length
    step.inside = inside
    step.opens = opens
    step.key = key
    step.last = <uint64_t>-1
    if length % 8:
        step.last = (<uint64_t>1 << (8 * (length % 8))) - 1


cdef inline int habit_of(Bytes p, Bytes e) noexcept nogil:
    # which habit a category has
    return <int>((e - p) * 5 + p[(e - p) // 2]) % HABITS
