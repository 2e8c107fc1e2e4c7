"""How much of what operations give is read by any other, backwards over all watched steps.

A view that leaves out rows or columns, and a gather, read a part. What works element by element
needs as much of what it takes as is read of what it gives; what works row by row (a product of its
first operand, a softmax, a norm or a sum over the last dimension) needs the rows. A backward pass
needs none of the rows whose gradient is zero. Anything else needs all.

A state that each step gathers or copies anew, such as the cache of a beam search, is still there
when the watch is over: of the last one as much is needed as of those before it.

A sort whose places are compared with a few numbers and then searched for them tells how many keys
come before each: to count these is one pass.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from pinchpoint.capture.flow.boxes import Box, around, box_of_view, read_through, share_of
from pinchpoint.capture.flow.operations import OVERWRITES, Kind, Operation
from pinchpoint.capture.flow.rows import is_of_rows, sums_rows
from pinchpoint.capture.flow.storages import Storage
from pinchpoint.capture.flow.zero_rows import Share, needed_in_backward
from pinchpoint.frozen import dataclass

# Each number that they give is computed by itself: what is not read need not be.
_APART = ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "convolution")
_PRODUCTS = frozenset(f"aten::{name}" for name in (*_APART, "conv1d", "conv2d", "conv3d"))
# Whose rows are those given.
_FIRST_OPERAND = {"aten::mm": 0, "aten::bmm": 0, "aten::linear": 0, "aten::addmm": 1}
_FIRST_OPERAND["aten::matmul"] = 0  # where it has as many dimensions as what it gives
_GATHERS = "aten::gather"
_TAKES = frozenset(f"aten::{name}" for name in ("index", "gather", "index_select", "take"))
_OVERWRITES = "aten::copy_"
_COPIES = frozenset(("aten::_to_copy", "aten::clone", _OVERWRITES))
# Whose results hold what was there, element by element.
_MOVES = _TAKES | _COPIES
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


class _Named:
    """Shares of a storage that readers need, each with a name for what it is a share of."""

    def __init__(self) -> None:
        # The part of the storage that a view is of, None for all of it; and the name of what is
        # read of that. The same name is read twice, another one may be another part.
        self.of: dict[tuple[Any, Any], float] = {}
        self.backward = 0.0  # there is no gradient but of what the forward pass reads

    @property
    def share(self) -> float:
        return max(min(sum(self.of.values()), 1.0), self.backward)

    @property
    def name(self) -> Any:
        if len(self.of) == 1:
            ((view, further),) = self.of
            return further if view is None else (view, further)
        return frozenset(self.of) or None

    def add(self, share: float, view: Any, further: Any) -> None:
        key = (view, further)
        self.of[key] = max(self.of.get(key, 0.0), share)


class _Reads:
    """Of one storage."""

    def __init__(self) -> None:
        self.elements, self.rows = _Named(), _Named()
        self.by: set[tuple[int, int]] = set()  # steps and operations
        self.box: Box | None = None  # around all that is read
        self.boxed = True  # what is read are boxes

    def add_box(self, box: Box | None) -> None:
        self.boxed = self.boxed and box is not None
        if box is not None:
            self.box = box if self.box is None else around(self.box, box)

    def most(self, made: Operation) -> float:
        """Of its elements, that are read."""
        if not self.boxed or self.box is None:
            return self.elements.share
        return min(self.elements.share, share_of(self.box, made.shape))


@dataclass(frozen=True)
class _Need:
    """What an operation needs of a tensor that it reads, or is read of what it gives."""

    elements: float = 1.0
    rows: float = 1.0
    elements_name: Any = None
    rows_name: Any = None

    def of_rows(self) -> "_Need":
        """All elements of the same rows."""
        return _Need(self.rows, self.rows, self.rows_name, self.rows_name)


_ALL = _Need()


def read_parts(
    steps: Sequence[Sequence[Operation]], storages: Sequence[Storage]
) -> list[list[Part]]:
    """For each operation what is needed of it; of backward passes, and where it is not known: all.

    Nothing at all is another cause, and counts as all.
    """
    steps, storages = _in_versions(steps, storages)
    whole = {n for n, one in enumerate(storages) if _is_kept(one)}
    whole -= _kept_as_those_before(steps, storages)
    written = (one for step in steps for one in step if not _changed_in_place(one))
    whole.update(
        number
        for one in written
        for number, all_of_it in one.writes
        if all_of_it or one.kind.name not in OVERWRITES  # else it puts something in a part of it
    )
    walk = _Walk(steps, whole)
    return [[walk.part(at, place) for place in range(len(step))] for at, step in enumerate(steps)]


def _in_versions(
    steps: Sequence[Sequence[Operation]], storages: Sequence[Storage]
) -> tuple[Sequence[Sequence[Operation]], Sequence[Storage]]:
    """The same, with a state that is moved within its own memory as another storage from then on:
    what was in it before is gone (``cache.copy_(cache.index_select(0, order))``)."""
    moved = {
        (number, one.reads[0][0])
        for step in steps
        for one in step
        if one.kind.name in _MOVES and one.reads
        for number in one.makes
    }
    now: dict[int, int] = {}
    versions = list(storages)

    def numbered(one: Operation) -> Operation:
        reads = tuple((now.get(number, number), lies) for number, lies in one.reads)
        if not _moves_within(one, moved):
            writes = tuple((now.get(number, number), all_of_it) for number, all_of_it in one.writes)
            return replace(one, reads=reads, writes=writes)
        ((number, _),) = one.writes
        if number in now:
            versions[now[number]] = replace(versions[now[number]], alive=False)
        now[number] = len(versions)
        versions.append(storages[number])
        return replace(one, reads=reads[1:], writes=(), makes=(now[number],))

    if not any(_moves_within(one, moved) for step in steps for one in step):
        return steps, storages
    return [[numbered(one) for one in step] for step in steps], versions


def _moves_within(one: Operation, moved: set[tuple[int, int]]) -> bool:
    """Whether it overwrites all of a storage with what was moved from there. ``moved``: what moves
    made, and what of."""
    if one.kind.name != _OVERWRITES or one.backward or len(one.writes) != 1 or len(one.reads) != 2:
        return False
    (number, all_of_it), (_, (source, _)) = one.writes[0], one.reads
    return all_of_it and (source, number) in moved


def _kept_as_those_before(
    steps: Sequence[Sequence[Operation]], storages: Sequence[Storage]
) -> set[int]:
    """Storages that are there still, moved last at a place of which those that an earlier step
    moved are not. A step between may have none, as the last one of a sequence."""
    moves: dict[Any, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for at, step in enumerate(steps):
        for one in step:
            if one.kind.name in _MOVES:
                moves[_moved_at(one)][at] += one.makes
    found: set[int] = set()
    for by_step in moves.values():
        *before, last = by_step.values()
        if before and not any(_is_kept(storages[n]) for n in before[-1]):
            found.update(n for n in last if storages[n].alive and not storages[n].escaped)
    return found


def _moved_at(one: Operation) -> tuple[str, tuple[int, ...], int]:
    return one.kind.name, one.shape, one.stack


class _Walk:
    def __init__(self, steps: Sequence[Sequence[Operation]], whole: set[int]) -> None:
        self.steps, self.whole = steps, whole
        self.reads: dict[int, _Reads] = defaultdict(_Reads)
        self.made = {n: one for step in steps for one in step for n in one.makes}
        for at in range(len(steps) - 1, -1, -1):
            needed = needed_in_backward(steps[at])
            for place in range(len(steps[at]) - 1, -1, -1):
                self._hand_on((at, place), steps[at][place], needed)

    def part(self, at: int, place: int) -> Part:
        """What is needed of one operation."""
        one = self.steps[at][place]
        read = self._read_of(one)
        gives = _gives(one)
        if one.backward or not read.elements or not gives:
            return Part()
        by = tuple(sorted(p for n in gives for step, p in self.reads[n].by if step == at))
        apart = one.kind.name in _PRODUCTS or one.kind.name in _TAKES
        if apart or _is_elementwise(one.kind) or sums_rows(one):
            return Part(read.elements, read.elements, by)
        if is_of_rows(one):
            return Part(read.rows, read.rows, by)
        if one.kind.name == _SORTS and (sought := self._sought(one)) <= MOST_TAKEN:
            return Part(sought, COUNT_RATIO, by)
        if read.elements <= MOST_TAKEN and one.kind.name == _PERMUTES:
            return Part(read.elements, read.elements, by)
        if read.elements <= MOST_TAKEN and one.kind.name == _SORTS and self._sliced(one):
            return Part(read.elements, SELECTION_RATIO, by)
        return Part()

    def _read_of(self, one: Operation) -> _Need:
        gives = _gives(one)
        if not gives or any(number in self.whole for number in gives):
            return _ALL
        reads = [self.reads[number] for number in gives]
        elements, rows = [r.elements for r in reads], [r.rows for r in reads]
        most_rows = max(some.share for some in rows)
        return _Need(
            min(max(some.most(one) for some in reads), most_rows),
            most_rows,
            _one_name(elements),
            _one_name(rows),
        )

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

    def _hand_on(
        self, key: tuple[int, int], one: Operation, needed: Mapping[tuple[int, int], Share]
    ) -> None:
        if one.view or one.kind.sizes_only:
            return
        back = one.backward and self._read_by_zeros_only(one)
        for order, (number, lies) in enumerate(one.reads):
            made = self.made.get(number)
            if made is None:
                continue
            if not order and _changed_in_place(one):  # as much is needed as is read afterwards
                self.reads[number].by.add(key)
                continue
            shape, stride, offset = lies[1:4]
            share = prod(shape) / max(prod(made.shape), 1)
            some_rows = _rows(made.shape, shape, stride)
            need = self._need(one, order, key)
            zeros = needed.get((key[1], order), Share())
            elements = share * min(need.elements, zeros.elements)
            rows = some_rows * min(need.rows, zeros.rows)
            mine = self.reads[number]
            mine.by.add(key)
            if need.elements > 0:
                mine.add_box(self._box(one, made, lies) if zeros == Share() else None)
            if back or zeros.rows < 1 or zeros.elements < 1:
                mine.elements.backward = max(mine.elements.backward, elements)
                mine.rows.backward = max(mine.rows.backward, rows)
                continue
            view = (shape, stride, offset) if share < 1 else None
            mine.elements.add(elements, view, need.elements_name)
            mine.rows.add(rows, view, need.rows_name)

    def _box(self, one: Operation, made: Operation, lies: tuple[Any, ...]) -> Box | None:
        """What a read needs of what was made, as far as that is a box."""
        shape, stride, offset = lies[1:4]
        box = box_of_view(made.shape, shape, stride, offset)
        gives = _gives(one)
        if shape != made.shape or len(gives) != 1 or gives[0] in self.whole:
            return box
        further = self.reads[gives[0]]
        if not further.boxed or further.box is None:
            return box
        return read_through(one.kind.name, one.plain, shape, one.shape, further.box) or box

    def _read_by_zeros_only(self, one: Operation) -> bool:
        reads = [self.reads[number] for number in _gives(one) if number not in self.whole]
        return bool(reads) and all(r.by and not r.elements.of for r in reads)

    def _need(self, one: Operation, order: int, key: tuple[int, int]) -> _Need:
        """What an operation needs of one tensor that it reads."""
        read, shape = self._read_of(one), one.reads[order][1][1]
        if not order and one.kind.name in _TAKES and one.makes:
            return _taken(one, shape, read, key)
        if _is_elementwise(one.kind) and shape == one.shape:
            return read
        if _is_elementwise(one.kind) and shape == (*one.shape[:-1], 1):  # a number for each row
            return read.of_rows()
        if not order and sums_rows(one):
            return _Need(read.elements, read.elements, read.elements_name, read.elements_name)
        first = order == _FIRST_OPERAND.get(one.kind.name)
        if is_of_rows(one) or (first and shape[:-1] == one.shape[:-1]):
            return read.of_rows()
        return _ALL


def _taken(one: Operation, shape: tuple[int, ...], read: _Need, key: tuple[int, int]) -> _Need:
    """What a gather, or another selection at places that a tensor tells, needs of the first."""
    elements = min(prod(one.shape) / max(prod(shape), 1), 1.0) * read.elements
    most_rows = max(prod(shape[:-1]), 1)
    rows = min(prod(one.shape) * read.elements / most_rows, 1.0)
    if one.kind.name == _GATHERS and one.shape[:-1] == shape[:-1] and _over_last(one, len(shape)):
        return _Need(elements, min(rows, read.rows), key, read.rows_name)
    if one.shape[-1:] == shape[-1:] and not _over_last(one, len(shape)):
        rows = min(rows, prod(one.shape[:-1]) / most_rows * read.rows)
    return _Need(elements, rows, key, key)


def _over_last(one: Operation, dimensions: int) -> bool:
    """Whether places are of the last dimension, or may be."""
    if one.kind.name == "aten::index":
        masks = sum(len(lies[1]) - 1 for _, lies in one.reads[1:] if lies[0] == "torch.bool")
        return len(one.plain[0][1]) + masks >= dimensions
    return one.plain[0][1] in ("-1", str(dimensions - 1), "tensor")


def _one_name(named: Sequence[_Named]) -> Any:
    names = {one.name for one in named if one.of}
    return names.pop() if len(names) == 1 else frozenset(names) or None


def _rows(made: tuple[int, ...], shape: tuple[int, ...], stride: tuple[int, ...]) -> float:
    """The share of rows that a look touches: at most one for each of its elements."""
    in_a_row = bool(made and shape) and shape[-1] <= made[-1] and stride[-1] == 1
    touched = prod(shape[:-1]) if in_a_row else prod(shape)
    return min(touched / max(prod(made[:-1]), 1), 1.0)


def _gives(one: Operation) -> tuple[int, ...]:
    """Storages of what it gives, be they new or not."""
    return one.makes or (one.writes[0][:1] if _changed_in_place(one) else ())


def _changed_in_place(one: Operation) -> bool:
    """Whether it changes each element of a whole tensor by itself, and nothing else."""
    if not one.kind.pointwise or one.makes or len(one.writes) != 1 or not one.reads:
        return False
    ((number, all_of_it),), (first, lies) = one.writes, one.reads[0]
    return all_of_it and number == first and lies[1] == one.shape


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
