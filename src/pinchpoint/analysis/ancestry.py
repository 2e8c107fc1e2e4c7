"""Who encloses whom on a host thread, answered for all rows at once.

Rows that enclose nothing and are enclosed by nothing have the parent ``len(rows)``: a position that
does not exist, so that a forgotten check fails loudly, and one that an array with one extra element
at its end can answer.
"""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.trace import Table
from pinchpoint.trace.arrays import Ints, Mask, Rows


def parents(host_ops: Table) -> Rows:
    """The enclosing row of each row; ``len(host_ops)`` where there is none."""
    return host_ops.filled("parent", len(host_ops)).astype(np.int64)


def nearest(parent: Rows, wanted: Mask) -> Rows:
    """The innermost wanted row that is or encloses each row; ``len(parent)`` where none does.

    Follows all chains together and doubles the stride each round, so that the deepest stack
    costs its logarithm.
    """
    none = len(parent)
    jump: Rows = np.append(np.where(wanted, np.arange(none), parent), none)
    while True:
        further: Rows = jump[jump]
        if np.array_equal(further, jump):
            return jump[:-1]
        jump = further


def above(parent: Rows, wanted: Mask) -> Rows:
    """The innermost wanted row that encloses each row without being it."""
    found: Rows = np.append(nearest(parent, wanted), len(parent))[parent]
    return found


def depths(parent: Rows) -> Rows:
    """How many rows enclose each row."""
    none = len(parent)
    jump = np.append(parent, none)
    depth = np.append((parent != none).astype(np.int64), 0)
    while np.any(jump != none):
        depth += depth[jump]
        jump = jump[jump]
    return depth[:-1]


def subtree_sums(parent: Rows, values: Ints) -> Ints:
    """The value of each row plus those of all rows inside it."""
    total = values.astype(np.int64)
    depth = depths(parent)
    order = np.argsort(-_sortable(depth), kind="stable")
    edges = np.flatnonzero(np.diff(depth[order])) + 1
    for level in np.split(order, edges):  # deepest first; one round a depth
        inner = level[parent[level] != len(parent)]
        np.add.at(total, parent[inner], total[inner])
    return total


def numbered(keys: Ints) -> Ints:
    """Small numbers for any non-negative keys, equal for equal ones and in their order.

    In place of ``np.unique`` where keys are not much more than rows: counting beats sorting.
    """
    if not len(keys) or keys.max() > 4 * len(keys) + 1024:
        return np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int64)
    used = np.bincount(keys) > 0
    numbers: Ints = (np.cumsum(used) - 1)[keys]
    return numbers


def _sortable(numbers: Ints) -> NDArray[np.integer]:
    """As 16-bit numbers if they fit: those are sorted by radix, several times faster."""
    return numbers.astype(np.int16) if numbers.max(initial=0) < 1 << 15 else numbers


def outermost(group: Ints, start: Ints, end: Ints) -> Mask:
    """Whether each interval lies inside no earlier one of its group.

    Recursion would otherwise count the same time once a level. Intervals are sorted by start,
    outer first; ``group`` numbers them (an operator on a thread, say).
    """
    if not len(group):
        return np.ones(0, np.bool_)
    order = np.argsort(_sortable(numbered(group)), kind="stable")
    ids = np.cumsum(np.diff(group[order], prepend=group[order[0]]) != 0)
    # Each group gets a range of its own above those before it, so one running maximum does.
    ends = end - start.min()
    span = int(ends.max()) + 1
    if int(ids[-1]) * span >= 1 << 62:  # does not fit: ranks compare like the times themselves
        ends = np.unique(ends, return_inverse=True)[1].reshape(-1)
        span = len(ends)
    reach = np.maximum.accumulate(ends[order] + ids * span)
    before = np.concatenate(([-1], reach[:-1])) - ids * span
    result = np.empty(len(group), np.bool_)
    result[order] = ends[order] > before
    return result
