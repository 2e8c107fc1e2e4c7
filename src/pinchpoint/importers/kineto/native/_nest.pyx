# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The compiled form of ``nesting.py`` and of what ``pairs.py`` does row by row.

Tests hold the two together.
"""

import numpy as np

from pinchpoint.importers.kineto.reading.fields import ABSENT
from pinchpoint.importers.kineto.reading.nesting import MOST_CROSSED, NONE, TOLERANCE_NS, Nesting

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef int64_t TOLERANCE = TOLERANCE_NS
cdef int64_t CROSSED = MOST_CROSSED
cdef int32_t NO_ROW = NONE
cdef int32_t NO_NAME = ABSENT


def nest(rows, calls, Py_ssize_t threads):
    """See :func:`pinchpoint.importers.kineto.reading.nesting.nest`."""
    cdef const int64_t[::1] start = rows.start
    cdef const int64_t[::1] end = rows.end
    cdef const int32_t[::1] thread = rows.thread
    cdef const uint8_t[::1] is_operator = rows.is_operator
    cdef const int64_t[::1] call_start = calls[0]
    cdef const int64_t[::1] call_end = calls[1]
    cdef const int32_t[::1] call_thread = calls[2]
    cdef Py_ssize_t count = start.shape[0], asked = call_start.shape[0]
    cdef Py_ssize_t row = 0, call, crossed
    cdef int64_t crossings = 0
    cdef int32_t top
    parent_out = np.empty(count, np.int32)
    enclosing_out = np.empty(asked, np.int32)
    tops = np.full(threads, NONE, np.int32)
    cdef int32_t[::1] parent = parent_out
    cdef int32_t[::1] enclosing = enclosing_out
    cdef int32_t[::1] opened = tops
    with nogil:
        for call in range(asked + 1):
            while row < count and (call == asked or start[row] <= call_start[call]):
                top = opened[thread[row]]
                while top != NO_ROW and (
                    end[top] <= start[row] or end[top] + TOLERANCE < end[row]
                ):
                    if end[top] > start[row] + TOLERANCE and is_operator[top]:
                        crossings += is_operator[row]
                    top = parent[top]
                parent[row] = top
                opened[thread[row]] = <int32_t>row
                row += 1
            if call == asked:
                break
            top = opened[call_thread[call]]
            crossed = 0
            while top != NO_ROW and (
                end[top] <= call_start[call] or end[top] + TOLERANCE < call_end[call]
            ):
                top = parent[top]
                crossed += 1
                if crossed == CROSSED:
                    top = NO_ROW
            enclosing[call] = top
    return Nesting(parent_out, enclosing_out, crossings)


def by_name(marks):
    """See ``_by_name`` in :mod:`pinchpoint.importers.kineto.pairs`."""
    cdef const int32_t[::1] place = marks.place
    cdef const int32_t[::1] name = marks.name
    cdef const uint8_t[::1] begins = marks.begins.view(np.uint8)
    cdef Py_ssize_t count = place.shape[0]
    cdef Py_ssize_t row, depth = 0, pairs = 0
    cdef int32_t top
    most = int(marks.name.max(initial=ABSENT))
    cdef int32_t[::1] opened = np.empty(count, np.int32)
    cdef int32_t[::1] open_of_name = np.zeros(most + 2, np.int32)  # the first one: without a name
    begin_out, end_out = np.empty(count, np.int64), np.empty(count, np.int64)
    cdef int64_t[::1] begin = begin_out
    cdef int64_t[::1] end = end_out
    with nogil:
        for row in range(count):
            if row and place[row] != place[row - 1]:
                while depth:
                    depth -= 1
                    open_of_name[name[opened[depth]] + 1] = 0
            if begins[row]:
                opened[depth] = <int32_t>row
                depth += 1
                open_of_name[name[row] + 1] += 1
            elif name[row] == NO_NAME or open_of_name[name[row] + 1]:
                while depth:
                    depth -= 1
                    top = opened[depth]
                    open_of_name[name[top] + 1] -= 1
                    if name[row] == NO_NAME or name[row] == name[top]:
                        begin[pairs] = top
                        end[pairs] = row
                        pairs += 1
                        break
    return begin_out[:pairs], end_out[:pairs]
