# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The compiled forms of ``Blocks`` in ``block_sizes.py`` and of ``paired`` in ``lives.py``.

Tests hold each to its plain form.
"""

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free

cdef struct Spot:
    uint64_t address
    uint64_t free_end  # of the free block that starts here; 0 if none does
    uint64_t free_start  # of the free block that ends here, as an end
    uint64_t used_end
    int64_t free_kind
    int64_t used_kind
    bint taken  # by an address


cdef class Blocks:
    """Free and used blocks by address."""

    cdef Spot* spots
    cdef Py_ssize_t size, filled
    cdef bint expandable
    cdef int64_t max_split
    cdef readonly int64_t unplaced
    cdef int64_t searched, least, large, most_searched

    def __cinit__(self, rules, limits):
        self.size, self.filled = 1 << 12, 0
        self.spots = <Spot*>calloc(self.size, sizeof(Spot))
        if self.spots == NULL:
            raise MemoryError
        self.least, self.large, self.most_searched = limits
        self.expandable = rules.expandable
        self.max_split = -1 if rules.max_split_bytes is None else rules.max_split_bytes

    def __dealloc__(self):
        free(self.spots)

    cdef Spot* find(self, uint64_t address) noexcept nogil:
        """The spot of an address, or the empty one that it would take."""
        cdef uint64_t hashed = (address >> 9) * <uint64_t>0x9E3779B97F4A7C15
        cdef uint64_t at = (hashed ^ address) >> 20 & <uint64_t>(self.size - 1)
        while self.spots[at].taken and self.spots[at].address != address:
            at = (at + 1) & <uint64_t>(self.size - 1)
        return &self.spots[at]

    cdef Spot* spot(self, uint64_t address) noexcept nogil:
        """The spot of an address, which takes one; there must be room."""
        cdef Spot* here = self.find(address)
        if not here.taken:
            here.taken = True
            here.address = address
            self.filled += 1
        return here

    cdef int room(self) except -1 nogil:
        """Make room for one event, for which four addresses are enough; drop what is empty."""
        cdef Spot* old = self.spots
        cdef Py_ssize_t i, size = self.size, used = 0
        if 2 * (self.filled + 8) < self.size:
            return 0
        for i in range(size):
            if old[i].free_end or old[i].free_start or old[i].used_end:
                used += 1  # ``or`` of addresses is an address, not a truth
        while self.size < 4 * (used + 8):
            self.size *= 2
        self.spots = <Spot*>calloc(self.size, sizeof(Spot))
        if self.spots == NULL:
            self.spots, self.size = old, size
            with gil:
                raise MemoryError
        self.filled = 0
        for i in range(size):
            if old[i].free_end or old[i].free_start or old[i].used_end:
                self.spot(old[i].address)[0] = old[i]
        free(old)
        return 0

    cdef void put(self, uint64_t start, uint64_t end, int64_t kind) noexcept nogil:
        cdef Spot* here
        if end > start:
            here = self.spot(start)
            here.free_end = end
            here.free_kind = kind
            self.spot(end).free_start = start

    cdef void joined(self, uint64_t start, uint64_t end, int64_t kind) noexcept nogil:
        cdef Spot* before
        cdef Spot* behind
        cdef Spot* here
        if end <= start:
            return
        here = self.find(start)
        if here.taken and here.free_start:
            before = self.find(here.free_start)
            if before.taken and before.free_end and before.free_kind >> 1 == kind >> 1:
                start = here.free_start
                here.free_start = 0
                before.free_end = 0
        behind = self.find(end)
        if behind.taken and behind.free_end and behind.free_kind >> 1 == kind >> 1:
            end = behind.free_end
            behind.free_end = 0
            self.find(end).free_start = 0
        self.put(start, end, kind)

    def join(self, uint64_t start, uint64_t end, int64_t kind):
        """See ``block_sizes.Blocks``."""
        self.room()
        self.joined(start, end, kind)

    def use(self, uint64_t start, uint64_t end, int64_t kind):
        """See ``block_sizes.Blocks``."""
        self.room()
        cdef Spot* here = self.spot(start)
        here.used_end = end
        here.used_kind = kind

    def lose(self, uint64_t start, uint64_t end, bint mapped):
        """See ``block_sizes.Blocks``."""
        cdef Spot* here
        cdef uint64_t begin = start, stop
        cdef Py_ssize_t i
        self.room()
        here = self.find(start)
        if not here.taken or not here.free_end:
            self.searched += self.size
            if not mapped or self.searched > self.most_searched:
                return
            for i in range(self.size):
                here = &self.spots[i]
                if here.free_end and here.address < start < here.free_end:
                    break
            else:
                return
            begin = here.address
        stop = here.free_end
        here.free_end = 0
        self.find(stop).free_start = 0
        self.put(begin, start, here.free_kind)
        self.put(end, stop, here.free_kind)

    def run(self, const uint8_t[::1] born, const uint64_t[::1] address, const int64_t[::1] least):
        """See ``block_sizes.Blocks``."""
        cdef Py_ssize_t row, made = 0
        cdef Spot* here
        cdef uint64_t end, stop
        cdef int64_t kind
        out = np.empty(int(np.count_nonzero(born)), np.int64)
        cdef int64_t[::1] size = out
        with nogil:
            for row in range(born.shape[0]):
                self.room()
                here = self.find(address[row])
                if not born[row]:
                    if here.taken and here.used_end:
                        end = here.used_end
                        here.used_end = 0
                        self.joined(address[row], end, here.used_kind)
                    continue
                if not here.taken or not here.free_end:
                    self.unplaced += 1
                    size[made] = least[row]
                    made += 1
                    continue
                end, kind = here.free_end, here.free_kind
                here.free_end = 0
                self.find(end).free_start = 0
                stop = address[row] + <uint64_t>least[row]
                if stop < end and self.splits(least[row], <int64_t>(end - stop), kind & 1):
                    self.put(stop, end, kind)
                    end = stop
                here.used_end = end
                here.used_kind = kind
                size[made] = <int64_t>(end - address[row])
                made += 1
        return out

    cdef bint splits(self, int64_t rounded, int64_t rest, bint small) noexcept nogil:
        if small or self.expandable:
            return rest >= self.least
        return (self.max_split < 0 or rounded < self.max_split) and rest > self.large


cdef struct Last:
    uint64_t address
    int64_t run  # the last one at this address; 0 where nobody has taken this place


cdef Py_ssize_t place_of(Last* places, Py_ssize_t size, uint64_t address) noexcept nogil:
    """Where an address is, or would be."""
    cdef uint64_t hashed = (address >> 9) * <uint64_t>0x9E3779B97F4A7C15
    cdef Py_ssize_t at = <Py_ssize_t>((hashed ^ address) >> 20 & <uint64_t>(size - 1))
    while places[at].run and places[at].address != address:
        at = (at + 1) & (size - 1)
    return at


cdef Last* larger(Last* places, Py_ssize_t size) noexcept nogil:
    """The same places in twice the room; NULL where there is no memory."""
    cdef Last* found = <Last*>calloc(2 * size, sizeof(Last))
    cdef Py_ssize_t i
    if found != NULL:
        for i in range(size):
            if places[i].run:
                found[place_of(found, 2 * size, places[i].address)] = places[i]
    return found


def paired(const uint8_t[::1] action, const uint64_t[::1] address, codes):
    """See ``lives.py``; ``codes``: those of an allocation, of a request to free it, of its end."""
    cdef uint8_t alloc, request, end
    alloc, request, end = codes
    cdef Py_ssize_t row, at, size = 1 << 12, used = 0
    cdef int64_t run, runs = 0, doubled = 0, events = action.shape[0]
    cdef Last* places = <Last*>calloc(size, sizeof(Last))
    cdef Last* more
    if places == NULL:
        raise MemoryError
    of_run = np.empty(events, np.uint64)
    columns = np.empty((4, events), np.int64)  # pages that are not reached cost nothing
    cdef uint64_t[::1] where = of_run
    cdef int64_t[::1] born = columns[0], asked = columns[1], done = columns[2], next_ = columns[3]
    try:
        with nogil:
            for row in range(events):
                if action[row] != alloc and action[row] != request and action[row] != end:
                    continue
                if 2 * (used + 1) > size:
                    more = larger(places, size)
                    if more == NULL:
                        with gil:
                            raise MemoryError
                    free(places)
                    places, size = more, 2 * size
                at = place_of(places, size, address[row])
                run = places[at].run - 1
                if run < 0 or action[row] == alloc:
                    if run >= 0:
                        next_[run] = row
                    used += run < 0
                    run = runs
                    runs += 1
                    where[run] = address[row]
                    born[run] = row if action[row] == alloc else -1
                    asked[run] = done[run] = next_[run] = -1
                    places[at].address, places[at].run = address[row], runs
                if action[row] == request:
                    doubled += asked[run] >= 0
                    asked[run] = row
                elif action[row] == end:
                    doubled += done[run] >= 0
                    done[run] = row
    finally:
        free(places)
    return of_run[:runs], columns[0, :runs], columns[1, :runs], columns[2, :runs], \
        columns[3, :runs], doubled
