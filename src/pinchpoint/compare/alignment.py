"""Which operation of one step is which of the other, although layers were inserted or swapped.

A weighted longest common subsequence over the operations in the order in which they were issued.
The same kernel from the same operator is the best partner; another kernel from the same operator
is still one (that is what a changed number format, layout or vendor looks like).
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Ints, Mask

SAME = 4  # same kernel, same operator
OTHER_KERNEL = 3  # same operator and category
OTHER_OPERATOR = 2  # same kernel
SAME_WORK = 1  # same category, and neither side knows the operator
MOST_CELLS = 40_000_000  # of the dynamic programme: one byte each, a fraction of a second
ANCHOR_LENGTH = 12  # operations in a row that are found once in each step pin the two together
NO_PARTNER = -1  # no position
NO_NAME = -1  # no position
_DIAGONAL, _UP, _LEFT = 1, 2, 3  # where the best way to a cell comes from


@dataclass(frozen=True, eq=False)
class Sequence:
    """Operations in order; numbers are shared by both sides. ``operator`` may be NO_NAME."""

    kernel: Ints
    operator: Ints
    category: Ints

    def __len__(self) -> int:
        return len(self.kernel)

    def part(self, low: int, high: int) -> "Sequence":
        """The operations from ``low`` up to ``high``."""
        return Sequence(self.kernel[low:high], self.operator[low:high], self.category[low:high])


def align(a: Sequence, b: Sequence) -> Ints:
    """For each operation of ``a`` the position of its partner in ``b``, or NO_PARTNER.

    Partners are in order on both sides.
    """
    partner = np.full(len(a), NO_PARTNER, np.int64)
    start, end = _common_ends(a, b)
    partner[:start] = np.arange(start)
    if end:
        partner[len(a) - end :] = np.arange(len(b) - end, len(b))
    _between(a, b, start, len(a) - end, start, len(b) - end, partner)
    return partner


def _common_ends(a: Sequence, b: Sequence) -> tuple[int, int]:
    """How many operations are the same at the beginning, and at the end of the rest."""
    n = min(len(a), len(b))
    same = _equal(a.part(0, n), b.part(0, n))
    start = n if same.all() else int(np.argmin(same))
    n -= start
    same = _equal(a.part(len(a) - n, len(a)), b.part(len(b) - n, len(b)))[::-1]
    return start, n if same.all() else int(np.argmin(same))


def _equal(a: Sequence, b: Sequence) -> Mask:
    same: Mask = (a.kernel == b.kernel) & (a.operator == b.operator)
    return same


def _between(a: Sequence, b: Sequence, a0: int, a1: int, b0: int, b1: int, partner: Ints) -> None:
    """Fill ``partner`` for ``a[a0:a1]`` against ``b[b0:b1]``."""
    if a0 >= a1 or b0 >= b1:
        return
    left, right = a.part(a0, a1), b.part(b0, b1)
    if len(left) * len(right) <= MOST_CELLS:
        found = _subsequence(left, right)
    else:
        pins = _anchors(left, right)
        if pins:
            edges = [(-1, -1), *pins, (len(left), len(right))]
            for (i, j), (k, m) in pairwise(edges):
                if i >= 0:
                    partner[a0 + i] = b0 + j
                _between(a, b, a0 + i + 1, a0 + k, b0 + j + 1, b0 + m, partner)
            return
        found = _by_count(left, right)
    matched = found != NO_PARTNER
    partner[a0:a1][matched] = found[matched] + b0


def _subsequence(a: Sequence, b: Sequence) -> Ints:
    """The heaviest common subsequence, by dynamic programming over rows."""
    n, m = len(a), len(b)
    move = np.zeros((n, m), np.uint8)
    before = np.zeros(m + 1, np.int32)
    for i in range(n):
        weight = _weights(a, i, b)
        diagonal = before[:-1] + weight
        row = np.maximum.accumulate(
            np.where(weight > 0, np.maximum(before[1:], diagonal), before[1:])
        )
        move[i] = np.where(
            (weight > 0) & (diagonal == row),
            _DIAGONAL,
            np.where(before[1:] == row, _UP, _LEFT),
        )
        before = np.concatenate((np.zeros(1, np.int32), row))
    return _walk_back(move)


def _weights(a: Sequence, i: int, b: Sequence) -> NDArray[np.int32]:
    kernel = b.kernel == a.kernel[i]
    operator = (b.operator == a.operator[i]) & (b.operator != NO_NAME)
    nameless = (b.operator == NO_NAME) & (a.operator[i] == NO_NAME)
    category = b.category == a.category[i]
    weight = np.where(nameless & category, SAME_WORK, 0)
    weight = np.where(kernel, OTHER_OPERATOR, weight)
    weight = np.where(operator & category, OTHER_KERNEL, weight)
    return np.where(kernel & (operator | nameless), SAME, weight).astype(np.int32)


def _walk_back(move: NDArray[np.uint8]) -> Ints:
    i, j = move.shape[0] - 1, move.shape[1] - 1
    partner = np.full(move.shape[0], NO_PARTNER, np.int64)
    while i >= 0 and j >= 0:
        step = move[i, j]
        if step == _DIAGONAL:
            partner[i] = j
            i, j = i - 1, j - 1
        elif step == _UP:
            i -= 1
        else:
            j -= 1
    return partner


def _anchors(a: Sequence, b: Sequence) -> list[tuple[int, int]]:
    """Positions of runs of operations that occur once in each, in an order both agree on."""
    left, right = _runs(a), _runs(b)
    pairs = sorted((i, right[run]) for run, i in left.items() if run in right)
    return _increasing(pairs)


def _runs(s: Sequence) -> dict[bytes, int]:
    """The runs of ANCHOR_LENGTH operations that occur once, with their position."""
    tokens = np.stack((s.kernel, s.operator), axis=1)
    first: dict[bytes, int] = {}
    for i in range(len(s) - ANCHOR_LENGTH + 1):
        run = tokens[i : i + ANCHOR_LENGTH].tobytes()
        first[run] = NO_PARTNER if run in first else i
    return {run: i for run, i in first.items() if i != NO_PARTNER}


def _increasing(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest chain of pairs that increases on both sides (patience sorting)."""
    tops: list[int] = []
    ends: list[int] = []
    back: list[int] = []
    for k, (_, j) in enumerate(pairs):
        pile = int(np.searchsorted(tops, j))
        back.append(ends[pile - 1] if pile else NO_PARTNER)
        tops[pile : pile + 1] = [j]
        ends[pile : pile + 1] = [k]
    chain, k = [], ends[-1] if ends else NO_PARTNER
    while k != NO_PARTNER:
        chain.append(pairs[k])
        k = back[k]
    return chain[::-1]


def _by_count(a: Sequence, b: Sequence) -> Ints:
    """Without order: the k-th operation of a kind with the k-th of the same kind."""
    partner = np.full(len(a), NO_PARTNER, np.int64)
    waiting: dict[tuple[int, int], list[int]] = {}
    for j in range(len(b)):
        waiting.setdefault((int(b.kernel[j]), int(b.operator[j])), []).append(j)
    taken: dict[tuple[int, int], int] = {}
    for i in range(len(a)):
        kind = (int(a.kernel[i]), int(a.operator[i]))
        k = taken.get(kind, 0)
        if k < len(waiting.get(kind, ())):
            partner[i] = waiting[kind][k]
            taken[kind] = k + 1
    return partner
