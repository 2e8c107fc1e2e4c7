"""Who encloses whom on a host thread, answered for all rows at once.

Rows that enclose nothing and are enclosed by nothing have the parent ``len(rows)``: a position that
does not exist, so that a forgotten check fails loudly, and one that an array with one extra element
at its end can answer.
"""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.trace import Table

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]


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


def subtree_sums(parent: Rows, values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The value of each row plus those of all rows inside it."""
    total = values.astype(np.int64)
    depth = depths(parent)
    if depth.max(initial=0) < 1 << 15:
        depth = depth.astype(np.int16)  # sorted by radix, several times faster
    order = np.argsort(-depth, kind="stable")
    edges = np.flatnonzero(np.diff(depth[order])) + 1
    for level in np.split(order, edges):  # deepest first; one round a depth
        inner = level[parent[level] != len(parent)]
        np.add.at(total, parent[inner], total[inner])
    return total


def outermost(group: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]) -> Mask:
    """Whether each interval lies inside no earlier one of its group.

    Recursion would otherwise count the same time once a level. Intervals are sorted by start,
    outer first; ``group`` numbers them (an operator on a thread, say).
    """
    if not len(group):
        return np.ones(0, np.bool_)
    order = np.argsort(group, kind="stable")
    ids = np.cumsum(np.diff(group[order], prepend=group[order[0]]) != 0)
    span = int(end.max()) - int(start.min()) + 1
    reach = np.maximum.accumulate(end[order] - start.min() + ids * span)
    before = np.concatenate(([-1], reach[:-1])) - ids * span + start.min()
    result = np.empty(len(group), np.bool_)
    result[order] = end[order] > before
    return result
