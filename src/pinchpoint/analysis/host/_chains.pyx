# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The compiled form of walks along parents in ``ancestry.py``; tests hold the two together.

Parents are rows before their own, or the number of rows where there is none: one pass in order of
rows, or against it, is a whole walk.
"""

import numpy as np

from libc.stdint cimport int64_t, uint8_t


def in_order(const int64_t[::1] parent):
    """Whether each parent is a row before its own, or none."""
    cdef Py_ssize_t row, none = parent.shape[0]
    for row in range(none):
        if parent[row] != none and not 0 <= parent[row] < row:
            return False
    return True


def nearest(const int64_t[::1] parent, const uint8_t[::1] wanted):
    """The innermost wanted row that is or encloses each row, else the number of rows."""
    cdef Py_ssize_t row, none = parent.shape[0]
    found = np.empty(none, np.int64)
    cdef int64_t[::1] out = found
    for row in range(none):
        if wanted[row]:
            out[row] = row
        else:
            out[row] = none if parent[row] == none else out[parent[row]]
    return found


def depths(const int64_t[::1] parent):
    """How many rows enclose each row."""
    cdef Py_ssize_t row, none = parent.shape[0]
    found = np.empty(none, np.int64)
    cdef int64_t[::1] out = found
    for row in range(none):
        out[row] = 0 if parent[row] == none else out[parent[row]] + 1
    return found


def add_to_parents(const int64_t[::1] parent, int64_t[::1] total):
    """Add what each row has, and what it got, to its parent."""
    cdef Py_ssize_t row, none = parent.shape[0]
    for row in range(none - 1, -1, -1):
        if parent[row] != none:
            total[parent[row]] += total[row]
