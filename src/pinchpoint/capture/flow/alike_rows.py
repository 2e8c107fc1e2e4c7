"""Work on batches whose rows are the same: a question for each of its answers, a prompt per beam.

What is given once and taken for all rows of a batch (a stride of zero, ``repeat``), and token ids
whose rows are the same ones, make rows of which few are distinct. Work on each row by itself gives
rows as much alike; anything else, and anything drawn at random, ends it.
"""

from collections.abc import Sequence
from typing import Any

from pinchpoint.capture.flow.operations import OVERWRITES, Operation, Tensor
from pinchpoint.capture.flow.repeats import idle
from pinchpoint.capture.flow.rows import is_of_rows, sums_rows
from pinchpoint.frozen import dataclass

FEWEST_POSITIONS = 8  # of a row of ids: shorter ones, such as one token, are alike by chance
MOST_IDS = 1 << 18  # looked at of one tensor: 0.02 s of a CPU
MOST_LOOKS = 8  # in a step
MOST_DISTINCT_RATIO = 0.5  # of the rows
_EVEN = ("aten::zeros", "aten::ones", "aten::full", "aten::new_zeros", "aten::new_ones")
LOOKS_UP = "aten::embedding"  # rows at ids
_INDICES = 1
_REPEAT = "aten::repeat"
_COPIES = frozenset(f"aten::{name}" for name in ("_to_copy", "clone"))
# Whose first tensor has the rows: others are weights.
_OF_THE_FIRST = ("mm", "linear", "convolution", "conv1d", "conv2d", "conv3d", "matmul")
_FIRST = {f"aten::{name}": 0 for name in _OF_THE_FIRST} | {"aten::addmm": 1}
_ATTENTION = "scaled_dot_product"
_WITH_KEYS = 3  # query, key, value
_BATCHED = frozenset(("aten::bmm", "aten::baddbmm"))


@dataclass(frozen=True)
class Alike:
    """Rows of a storage: so many parts of equal size, one after another, of which few differ."""

    rows: int
    distinct: int
    order: Any = None  # which are the same; None: all are


class SameIds:
    """Looks at ids of embeddings that are about to be looked up."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.found: dict[tuple[int, int], Alike] = {}  # by step and operation
        self._looks = 0
        self._step = -1

    def look(self, step: int, at: int, args: Any) -> None:
        """At the arguments of such an operation."""
        if len(args) <= _INDICES:
            return
        if step != self._step:
            self._step, self._looks = step, 0
        ids = args[_INDICES]
        fits = ids.dim() == 2 and len(ids) > 1 and ids.shape[1] >= FEWEST_POSITIONS
        if not fits or ids.numel() > MOST_IDS or self._looks >= MOST_LOOKS:
            return
        self._looks += 1
        _, same = self._torch.unique(ids, dim=0, return_inverse=True)
        order = tuple(same.tolist())
        self.found[step, at] = Alike(len(ids), len(set(order)), order)


def alike_rows(
    steps: Sequence[Sequence[Operation]], ids: "dict[tuple[int, int], Alike]"
) -> list[list[float]]:
    """For each operation the share of the rows of what it gives that differ; 1 where that is not
    known, for what makes the copies, and for backward passes."""
    walk = _Walk()
    return [
        [walk.share(one, ids.get((number, at))) for at, one in enumerate(step)]
        for number, step in enumerate(steps)
    ]


class _Walk:
    def __init__(self) -> None:
        self.told: dict[int, Alike] = {}  # by storage
        self.even: set[int] = set()  # storages that hold one value

    def share(self, one: Operation, looked_at: Alike | None) -> float:
        """Of one operation, after those before it."""
        if one.view:
            return 1.0
        gives = None if one.random or one.kind.opaque or one.backward else self._gives(one)
        if gives is None and looked_at is not None:
            gives = looked_at
        if gives is not None and (not one.shape or one.shape[0] % gives.rows):
            gives = None
        self._note(one, gives)
        copies = one.kind.name in _COPIES or one.kind.name == _REPEAT
        if gives is None or copies or idle(one) or not (one.makes or one.writes):
            return 1.0
        return gives.distinct / gives.rows

    def _note(self, one: Operation, gives: Alike | None) -> None:
        constant = one.kind.name.startswith(_EVEN)
        for number in one.makes:
            if gives is not None:
                self.told[number] = gives
            elif constant:
                self.even.add(number)
        for number, _ in one.writes:
            mine = self._put_into(one, number) if one.kind.name in OVERWRITES else gives
            self.told.pop(number, None)
            self.even.discard(number)
            if mine is not None:
                self.told[number] = mine

    def _put_into(self, one: Operation, number: int) -> Alike | None:
        """What a storage becomes where some rows are put into a part of each of its own."""
        before, even = self.told.get(number), number in self.even
        into = next((lies for n, lies in one.reads if n == number), None)
        came = next((self._of(read) for read in one.reads if read[0] != number), None)
        if came is None or into is None or not into[1] or into[1][0] != came.rows:
            return None
        return came if even or before == came else None

    def _of(self, read: Tensor) -> Alike | None:
        """How the rows of a tensor are alike."""
        number, (_, shape, stride, *_rest) = read
        if not shape:
            return None
        if stride[0] == 0 and shape[0] > 1:
            return Alike(shape[0], 1)
        if len(shape) > 1 and stride[1] == 0 and shape[1] > 1:  # repeat_interleave, before its copy
            return Alike(shape[0] * shape[1], shape[0], ("each", shape[1]))
        told = self.told.get(number)
        if told is None or shape[0] % told.rows or stride[0] < max(stride):
            return None
        return told

    def _gives(self, one: Operation) -> Alike | None:
        name = one.kind.name
        if one.kind.sizes_only:
            return None
        if name == _REPEAT:
            return _repeated(one)
        if name == LOOKS_UP:
            return self._of(one.reads[_INDICES]) if len(one.reads) > _INDICES else None
        if name in _FIRST:
            return self._of(one.reads[_FIRST[name]]) if len(one.reads) > _FIRST[name] else None
        if is_of_rows(one) or sums_rows(one):
            return self._of(one.reads[0]) if one.reads else None
        if _ATTENTION in name and "backward" not in name:
            needed = one.reads[:_WITH_KEYS] + tuple(
                read for read in one.reads[_WITH_KEYS:] if len(read[1][1]) > 2 and read[1][1][0] > 1
            )
            return _together([self._of(read) for read in needed])
        if name in _BATCHED:
            return _together([self._of(read) for read in one.reads])
        if one.kind.pointwise or name in _COPIES:
            whole = [read for read in one.reads if _has_rows(read, one.shape)]
            return _together([self._of(read) for read in whole])
        return None


def _has_rows(read: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether a tensor has rows of its own, not one that is taken for all."""
    mine = read[1][1]
    return bool(shape) and len(mine) == len(shape) and mine[0] == shape[0] and shape[0] > 1


def _together(some: Sequence[Alike | None]) -> Alike | None:
    """How rows are alike that are made of these."""
    if not some or any(one is None for one in some):
        return None
    known = [one for one in some if one is not None]
    ordered = [one for one in known if one.order is not None] or known
    same = all(one.rows == known[0].rows for one in known)
    return ordered[0] if same and all(one == ordered[0] for one in ordered) else None


def _repeated(one: Operation) -> Alike | None:
    """Of a tensor that is repeated as a whole."""
    given: tuple[Any, ...] = one.plain[0] if one.plain else ()
    times: tuple[str, ...] = given[1] if len(given) > 1 and isinstance(given[1], tuple) else ()
    source: tuple[int, ...] = one.reads[0][1][1] if one.reads else ()
    if not times or not times[0].isdigit() or int(times[0]) < 2:
        return None
    if len(times) > len(source):
        return Alike(int(times[0]), 1)
    rows = int(times[0]) * source[0]
    return Alike(rows, source[0], ("all", int(times[0])) if source[0] > 1 else None)
