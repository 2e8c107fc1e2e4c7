"""Who encloses whom on a host thread, answered for all rows at once."""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.trace import Table

Rows = NDArray[np.int64]


def parents(host_ops: Table) -> Rows:
    """The enclosing row of each row; ``len(host_ops)`` where there is none.

    The length is a position that does not exist, so that a forgotten check fails loudly, and one
    that an array with one extra element at its end can answer.
    """
    return host_ops.filled("parent", len(host_ops)).astype(np.int64)


def nearest(parent: Rows, wanted: NDArray[np.bool_]) -> Rows:
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
