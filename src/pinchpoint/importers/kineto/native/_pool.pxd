# Interned texts: each different one is kept once and has a position.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from pinchpoint.importers.kineto.native._text cimport Bytes, half_word, word

cdef enum:
    NO_MEMORY = -2


cdef struct Slot:
    # of the hash table: part of the hash, and a position plus one; 0 for an empty slot
    uint32_t tag
    uint32_t text


cdef struct Text:
    int64_t offset
    int64_t length


cdef struct Pool:
    uint64_t seed  # chosen at random, so that no file can prepare texts that collide
    int64_t count
    int64_t room
    int64_t slots
    Slot* slot
    Text* text
    uint8_t* data
    int64_t used
    int64_t size


cdef inline uint64_t mixed(uint64_t h) noexcept nogil:
    h ^= h >> 32
    h *= <uint64_t>0x9E3779B97F4A7C15
    return h


cdef inline uint64_t hash_of(Bytes p, int64_t n, uint64_t seed) noexcept nogil:
    # eight bytes at a time; the last eight may overlap those before
    cdef uint64_t h = seed ^ (<uint64_t>n * <uint64_t>0xD6E8FEB86659FD93)
    cdef Bytes last = p + n - 8
    if n >= 8:
        while p < last:
            h = mixed(h ^ word(p))
            p += 8
        h = mixed(h ^ word(last))
    elif n >= 4:
        h = mixed(h ^ (<uint64_t>half_word(p) | <uint64_t>half_word(p + n - 4) << 32))
    elif n:
        h = mixed(h ^ (<uint64_t>p[0] | <uint64_t>p[n // 2] << 8 | <uint64_t>p[n - 1] << 16))
    h = mixed(h)
    return h ^ (h >> 29)


cdef inline bint is_text(const Pool* pool, int64_t position, Bytes p, int64_t n) noexcept nogil:
    cdef const Text* text = &pool.text[position]
    return text.length == n and memcmp(pool.data + text.offset, p, n) == 0


cdef inline int64_t intern(Pool* pool, Bytes p, int64_t n) noexcept nogil:
    # the position of a text; NO_MEMORY
    cdef uint64_t h = hash_of(p, n, pool.seed)
    cdef uint32_t tag = <uint32_t>(h >> 32)
    cdef int64_t mask = pool.slots - 1
    cdef int64_t at = <int64_t>(h & <uint64_t>mask)
    cdef Slot slot = pool.slot[at]
    while slot.text:
        if slot.tag == tag and is_text(pool, slot.text - 1, p, n):
            return slot.text - 1
        at = (at + 1) & mask
        slot = pool.slot[at]
    return add_text(pool, p, n, h)


cdef inline int64_t add_text(Pool* pool, Bytes p, int64_t n, uint64_t h) noexcept nogil:
    cdef int64_t position = pool.count
    if position >= pool.room and not grow_table(pool):
        return NO_MEMORY
    if pool.used + n > pool.size and not grow_data(pool, n):
        return NO_MEMORY
    pool.text[position].offset = pool.used
    pool.text[position].length = n
    memcpy(pool.data + pool.used, p, n)
    pool.used += n
    pool.count += 1
    put(pool, position, h)
    return position


cdef inline void put(Pool* pool, int64_t position, uint64_t h) noexcept nogil:
    cdef int64_t at = <int64_t>(h & <uint64_t>(pool.slots - 1))
    while pool.slot[at].text:
        at = (at + 1) & (pool.slots - 1)
    pool.slot[at].tag = <uint32_t>(h >> 32)
    pool.slot[at].text = <uint32_t>(position + 1)


cdef inline bint grow_data(Pool* pool, int64_t n) noexcept nogil:
    cdef int64_t size = 2 * pool.size + n
    cdef uint8_t* data = <uint8_t*>realloc(pool.data, size)
    if data == NULL:
        return False
    pool.data = data
    pool.size = size
    return True


cdef inline bint grow_table(Pool* pool) noexcept nogil:
    cdef int64_t room = 2 * pool.room if pool.room else 4096
    cdef int64_t k
    cdef Text* text = <Text*>realloc(pool.text, room * sizeof(Text))
    if text == NULL:
        return False
    pool.text = text
    cdef Slot* slot = <Slot*>realloc(pool.slot, 2 * room * sizeof(Slot))
    if slot == NULL or room > <int64_t>0x7FFFFFFF:
        return False
    pool.slot = slot
    pool.room = room
    pool.slots = 2 * room
    for k in range(pool.slots):
        slot[k].text = 0
    for k in range(pool.count):
        put(pool, k, hash_of(pool.data + text[k].offset, text[k].length, pool.seed))
    return True


cdef inline void empty(Pool* pool) noexcept nogil:
    free(pool.slot)
    free(pool.text)
    free(pool.data)
