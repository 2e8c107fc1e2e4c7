# The keys that are looked for, found by their length and first eight bytes.

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from pinchpoint.importers.kineto.native._text cimport Bytes, word

cdef enum:
    MOST_KEYS = 64
    LONGEST_KEY = 40


cdef struct Key:
    int column
    int form
    int shift
    uint64_t head
    uint8_t text[LONGEST_KEY]


cdef struct Keys:
    # keys of one kind, grouped by length
    Key key[MOST_KEYS]
    int first[LONGEST_KEY + 1]
    int after[LONGEST_KEY + 1]


cdef inline uint64_t first_bytes(Bytes p, int64_t n, Bytes e) noexcept nogil:
    # up to eight bytes of a text of n bytes; e: what may not be read
    cdef uint64_t value = 0
    if e - p < 8:
        memcpy(&value, p, n if n < 8 else 8)
        return value
    value = word(p)
    if n < 8:
        value &= (<uint64_t>1 << (8 * n)) - 1
    return value


cdef inline Key* find_key(Keys* keys, Bytes p, int64_t n, Bytes e) noexcept nogil:
    cdef int k
    cdef uint64_t head
    cdef Key* key
    if n > LONGEST_KEY or n == 0 or keys.first[n] == keys.after[n]:
        return NULL
    head = first_bytes(p, n, e)
    for k in range(keys.first[n], keys.after[n]):
        key = &keys.key[k]
        if key.head == head and (n <= 8 or memcmp(key.text + 8, p + 8, n - 8) == 0):
            return key
    return NULL
