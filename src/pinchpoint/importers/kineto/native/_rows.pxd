# What a scan collects: rows in columns, places, stretches of text. All grow; 0 or NO_MEMORY is
# returned when memory runs out.

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from pinchpoint.importers.kineto.native._pool cimport NO_MEMORY, mixed

cdef enum:
    MOST_COLUMNS = 64


cdef struct Rows:
    # one lane: cells[column * room + row]; the last column is the event
    int columns
    int column[MOST_COLUMNS]
    int64_t* cells
    int64_t count
    int64_t room


cdef struct Place:
    int64_t process
    int64_t thread


cdef struct Places:
    # different pairs of process and thread; a slot holds a position plus one
    Place* place
    int64_t count
    int64_t last
    int64_t* slot
    int64_t slots


cdef struct Span:
    int64_t event
    Py_ssize_t begin
    Py_ssize_t end


cdef struct Spans:
    Span* span
    int64_t count
    int64_t room


cdef inline bint grow_rows(Rows* rows) noexcept nogil:
    cdef int64_t room = 2 * rows.room + 1024
    cdef int64_t* cells = <int64_t*>malloc((rows.columns + 1) * room * 8)
    cdef int k
    if cells == NULL:
        return False
    for k in range(rows.columns + 1):
        if rows.count:
            memcpy(cells + k * room, rows.cells + k * rows.room, rows.count * 8)
    free(rows.cells)
    rows.cells = cells
    rows.room = room
    return True


cdef inline int64_t place_of(Places* places, int64_t process, int64_t thread) noexcept nogil:
    cdef int64_t k = places.last
    cdef int64_t at
    if k < places.count and is_place(places, k, process, thread):
        return k
    if 2 * places.count >= places.slots and not grow_places(places):
        return NO_MEMORY
    at = slot_of(places, process, thread)
    while places.slot[at]:
        k = places.slot[at] - 1
        if is_place(places, k, process, thread):
            places.last = k
            return k
        at = (at + 1) & (places.slots - 1)
    k = places.count
    places.count += 1
    places.place[k].process = process
    places.place[k].thread = thread
    places.slot[at] = k + 1
    places.last = k
    return k


cdef inline bint is_place(Places* places, int64_t k, int64_t process, int64_t thread) noexcept nogil:
    return places.place[k].process == process and places.place[k].thread == thread


cdef inline int64_t slot_of(Places* places, int64_t process, int64_t thread) noexcept nogil:
    cdef uint64_t h = mixed(mixed(<uint64_t>process << 32 ^ <uint64_t>thread))
    return <int64_t>(h >> 20 & <uint64_t>(places.slots - 1))


cdef inline bint grow_places(Places* places) noexcept nogil:
    cdef int64_t slots = 2 * places.slots if places.slots else 256
    cdef int64_t k, at
    cdef Place* place = <Place*>realloc(places.place, slots * sizeof(Place))
    if place == NULL:
        return False
    places.place = place
    cdef int64_t* slot = <int64_t*>realloc(places.slot, slots * 8)
    if slot == NULL:
        return False
    places.slot = slot
    places.slots = slots
    for at in range(slots):
        slot[at] = 0
    for k in range(places.count):
        at = slot_of(places, place[k].process, place[k].thread)
        while slot[at]:
            at = (at + 1) & (slots - 1)
        slot[at] = k + 1
    return True


cdef inline bint add_span(
    Spans* spans, int64_t event, Py_ssize_t begin, Py_ssize_t end
) noexcept nogil:
    cdef Span* span
    if spans.count >= spans.room:
        span = <Span*>realloc(spans.span, (2 * spans.room + 64) * sizeof(Span))
        if span == NULL:
            return False
        spans.span = span
        spans.room = 2 * spans.room + 64
    spans.span[spans.count].event = event
    spans.span[spans.count].begin = begin
    spans.span[spans.count].end = end
    spans.count += 1
    return True
