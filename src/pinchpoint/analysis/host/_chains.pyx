# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The compiled form of walks along parents in ``ancestry.py``; tests hold the two together.

Where every parent is a row before its own, or the number of rows where there is none, one pass in
order of rows, or against it, is a whole walk. Each function gives None where it finds another one.
"""

import numpy as np

from libc.stdint cimport int64_t, uint8_t


def nearest(const int64_t[::1] parent, const uint8_t[::1] wanted):
    """The innermost wanted row that is or encloses each row, else the number of rows."""
    cdef Py_ssize_t row, none = parent.shape[0]
    found = np.empty(none, np.int64)
    cdef int64_t[::1] out = found
    for row in range(none):
        if wanted[row]:
            out[row] = row
        elif parent[row] == none:
            out[row] = none
        elif 0 <= parent[row] < row:
            out[row] = out[parent[row]]
        else:
            return None
    return found


def depths(const int64_t[::1] parent):
    """How many rows enclose each row."""
    cdef Py_ssize_t row, none = parent.shape[0]
    found = np.empty(none, np.int64)
    cdef int64_t[::1] out = found
    for row in range(none):
        if parent[row] == none:
            out[row] = 0
        elif 0 <= parent[row] < row:
            out[row] = out[parent[row]] + 1
        else:
            return None
    return found


def subtree_sums(const int64_t[::1] parent, const int64_t[::1] values):
    """The value of each row plus those of all rows inside it."""
    cdef Py_ssize_t row, none = parent.shape[0]
    found = np.array(values)
    cdef int64_t[::1] out = found
    for row in range(none - 1, -1, -1):
        if 0 <= parent[row] < row:
            out[parent[row]] += out[row]
        elif parent[row] != none:
            return None
    return found
