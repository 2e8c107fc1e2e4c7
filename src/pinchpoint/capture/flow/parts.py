"""How much of what operations give is read by any other, backwards over all watched steps.

A view that leaves out rows or columns, and a gather, read a part. What works element by element
needs as much of what it takes as is read of what it gives; what works row by row (a product of its
first operand, a softmax, a norm over the last dimension) needs the rows. Anything else needs all.

A sort whose places are compared with a few numbers and then searched for them tells how many keys
come before each: to count these is one pass.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from pinchpoint.capture.flow.operations import Kind, Operation
from pinchpoint.capture.flow.storages import Storage
from pinchpoint.frozen import dataclass

# Each number that they give is computed by itself: what is not read need not be.
_APART = ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "convolution")
_PRODUCTS = frozenset(f"aten::{name}" for name in (*_APART, "conv1d", "conv2d", "conv3d"))
_ROW_BY_ROW = frozenset(
    f"aten::{name}"
    for name in ("_softmax", "_log_softmax", "native_layer_norm", "_fused_rms_norm", "rms_norm")
)
_FIRST_OPERAND = {"aten::mm": 0, "aten::addmm": 1, "aten::linear": 0}  # whose rows are those given
_TAKES = frozenset(f"aten::{name}" for name in ("index", "gather", "index_select", "take"))
_COPIES = frozenset(f"aten::{name}" for name in ("_to_copy", "clone"))
_SORTS = "aten::sort"
_PERMUTES = "aten::randperm"
# Of what is sorted or permuted: beyond it draws meet what was drawn, and a selection sorts.
MOST_TAKEN = 0.25
_DIGITS = 4  # of keys of 32 bits, a byte each; and places of 8 bytes go with them
# Passes of a selection by digits over the keys, and of a sort, there and back, over all that moves.
SELECTION_RATIO = (_DIGITS + 1) * 4 / (_DIGITS * 2 * (4 + 8))
_COMPARES = "aten::eq"
_SEARCHES = frozenset(f"aten::{name}" for name in ("nonzero", "argmax", "max"))
# A pass over the keys, and one each to write and read of each whether it is larger, a byte; of a
# sort, as above.
COUNT_RATIO = (4 + 1 + 1) / (_DIGITS * 2 * (4 + 8))


@dataclass(frozen=True)
class Part:
    """What is needed of one operation: shares of its results, and of its work."""

    read: float = 1.0
    left: float = 1.0
    taken_by: tuple[int, ...] = ()  # operations of the step that hand on what is read


@dataclass
class _Reads:
    """Of one storage: shares of its elements and its rows, by how readers look at it."""

    of: dict[Any, tuple[float, float]]
    by: set[tuple[int, int]]  # steps and operations

    @property
    def elements(self) -> float:
        return min(sum(elements for elements, _ in self.of.values()), 1.0)

    @property
    def rows(self) -> float:
        return min(sum(rows for _, rows in self.of.values()), 1.0)


_ALL = (1.0, 1.0)


def read_parts(
    steps: Sequence[Sequence[Operation]], storages: Sequence[Storage]
) -> list[list[Part]]:
    """For each operation what is needed of it; of backward passes, and where it is not known: all.

    Nothing at all is another cause, and counts as all.
    """
    whole = {n for n, one in enumerate(storages) if _is_kept(one)}
    whole.update(number for step in steps for one in step for number, _ in one.writes)
    walk = _Walk(steps, whole)
    return [[walk.part(at, place) for place in range(len(step))] for at, step in enumerate(steps)]


class _Walk:
    def __init__(self, steps: Sequence[Sequence[Operation]], whole: set[int]) -> None:
        self.steps, self.whole = steps, whole
        self.reads: dict[int, _Reads] = defaultdict(lambda: _Reads({}, set()))
        self.made = {n: one for step in steps for one in step for n in one.makes}
        for at in range(len(steps) - 1, -1, -1):
            for place in range(len(steps[at]) - 1, -1, -1):
                self._hand_on((at, place), steps[at][place])

    def part(self, at: int, place: int) -> Part:
        """What is needed of one operation."""
        one = self.steps[at][place]
        elements, rows = self._read_of(one)
        if one.backward or not elements or not one.makes:
            return Part()
        by = sorted(p for n in one.makes for step, p in self.reads[n].by if step == at)
        if one.kind.name in _PRODUCTS or _is_elementwise(one.kind):
            return Part(elements, elements, tuple(by))
        if one.kind.name in _ROW_BY_ROW:
            return Part(rows, rows, tuple(by))
        if one.kind.name == _SORTS and (sought := self._sought(one)) <= MOST_TAKEN:
            return Part(sought, COUNT_RATIO, tuple(by))
        if elements <= MOST_TAKEN and one.kind.name == _PERMUTES:
            return Part(elements, elements, tuple(by))
        if elements <= MOST_TAKEN and one.kind.name == _SORTS and self._sliced(one):
            return Part(elements, SELECTION_RATIO, tuple(by))
        return Part()

    def _read_of(self, one: Operation) -> tuple[float, float]:
        if any(number in self.whole for number in one.makes) or not one.makes:
            return _ALL
        reads = [self.reads[number] for number in one.makes]
        return max(r.elements for r in reads), max(r.rows for r in reads)

    def _sliced(self, one: Operation) -> bool:
        """Whether parts of it are taken by views: not at places that something else tells."""
        readers = (self.steps[at][p] for n in one.makes for at, p in self.reads[n].by)
        return not any(r.kind.name in _TAKES and r.reads[0][0] in one.makes for r in readers)

    def _sought(self, one: Operation) -> float:
        """Of the places that a sort gives, the share that somebody looks for; all where somebody
        reads them, or its keys in order, for something else."""
        if len(one.makes) != 2 or self._kept_or_read(one.makes[0]):
            return 1.0
        places, sought = one.makes[1], 0
        comparisons = [self.steps[at][place] for at, place in self.reads[places].by]
        for compared in comparisons:
            others = [prod(lies[1]) for number, lies in compared.reads if number != places]
            if compared.kind.name != _COMPARES or len(others) != 1 or not self._searched(compared):
                return 1.0
            sought += others[0]
        whole = not comparisons or places in self.whole
        return 1.0 if whole else min(sought / max(prod(one.shape), 1), 1.0)

    def _searched(self, one: Operation) -> bool:
        """Whether what a comparison gives is read for where it is true, and for nothing else."""
        by = [self.steps[at][place] for n in one.makes for at, place in self.reads[n].by]
        kept = any(number in self.whole for number in one.makes)
        return (
            bool(by)
            and not kept
            and all(
                reader.kind.name in _SEARCHES
                or (reader.kind.name in _COPIES and self._searched(reader))
                for reader in by
            )
        )

    def _kept_or_read(self, number: int) -> bool:
        return number in self.whole or bool(self.reads[number].by)

    def _hand_on(self, key: tuple[int, int], one: Operation) -> None:
        if one.view or one.kind.sizes_only:
            return
        elements, rows = self._read_of(one)
        first = _FIRST_OPERAND.get(one.kind.name)
        for order, (number, lies) in enumerate(one.reads):
            made = self.made.get(number)
            if made is None:
                continue
            shape, stride, offset = lies[1:4]
            there = max(prod(made.shape), 1)
            share, some_rows = prod(shape) / there, _rows(made.shape, shape, stride)
            if not order and one.kind.name in _TAKES and one.makes:
                taken = min(prod(one.shape) / there, 1.0)
                told = (taken, min(prod(one.shape) / max(prod(made.shape[:-1]), 1), 1.0))
            elif _is_elementwise(one.kind) and shape == one.shape:
                told = (share * elements, some_rows * rows)
            elif one.kind.name in _ROW_BY_ROW or order == first:
                told = (share * rows, some_rows * rows)
            else:
                told = (share, some_rows)
            mine = self.reads[number]
            before = mine.of.get((shape, stride, offset), (0.0, 0.0))
            mine.of[shape, stride, offset] = (max(before[0], told[0]), max(before[1], told[1]))
            mine.by.add(key)


def _rows(made: tuple[int, ...], shape: tuple[int, ...], stride: tuple[int, ...]) -> float:
    """The share of rows that a look touches: at most one for each of its elements."""
    in_a_row = bool(made and shape) and shape[-1] <= made[-1] and stride[-1] == 1
    touched = prod(shape[:-1]) if in_a_row else prod(shape)
    return min(touched / max(prod(made[:-1]), 1), 1.0)


def _is_elementwise(kind: Kind) -> bool:
    return kind.pointwise or kind.name in _COPIES


def _is_kept(one: Storage) -> bool:
    return one.alive or one.escaped or one.after_backward


def chains_of_parts(parts: Sequence[Part], few: Sequence[bool]) -> Iterator[list[int]]:
    """Operations of one step of which little is read, those that hand it on to others together."""
    parent = list(range(len(parts)))

    def top(at: int) -> int:
        while parent[at] != at:
            parent[at] = at = parent[parent[at]]
        return at

    for at, part in enumerate(parts):
        for other in part.taken_by if few[at] else ():
            if few[other]:
                parent[top(other)] = top(at)
    groups: dict[int, list[int]] = defaultdict(list)
    for at, member in enumerate(few):
        if member:
            groups[top(at)].append(at)
    yield from groups.values()
