"""What loops of compiled programs write anew though it hardly changes.

A loop (``jax.lax.scan``) that takes an array slice by slice and gives it back slice by slice keeps
two of them: XLA reads each slice of the one and writes it into the other, be it changed at one
position or not at all. One that carries the array and sets a whole slice of it does the same in one
array. Followed are slices of what a loop takes, through updates of a part of them, until they are
put into an array of the loop at the place they came from: another one, if the loop never writes the
first, or the same.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from pinchpoint.frozen import dataclass
from pinchpoint.importers.xplane.hlo import NO_WORK, Instruction, Program


class Rewritten(NamedTuple):
    """A launch that moves what hardly changes."""

    at: str | None  # the line of the loop
    changed_ratio: float  # of its work, what changes
    carried_ratio: float  # what stays of it if the loop carries one array and changes that in place
    written_bytes: int | None = None  # of a launch that puts slices back: these
    copied_bytes: int | None = None  # of a copy of the whole array: what it copies


_MOST_CHANGED = 0.5  # of a slice; beyond it most of the work is needed
_LEAST_BYTES = 1 << 20  # of a slice: less is a matter of launches
_INDEX_BYTES = 8  # of one number
_LARGEST_PROGRAM = 200_000  # instructions: more take a second to go through
_DEEPEST = 30  # fusions in fusions, and what is looked through to a value
# Of a program's instructions: each is looked at once, but for what several of them call.
_MOST_LOOKS_RATIO = 8


@dataclass(frozen=True)
class _Part:
    """An array that the loop goes with, whole."""

    number: int


@dataclass(frozen=True)
class _Scalar:
    """A number that is computed alike wherever it has this key."""

    key: int


@dataclass(frozen=True)
class _Slice:
    """A slice of such an array, with what was changed in it."""

    of: int
    place: tuple[int | None, ...]  # where it was taken: keys
    bytes: int
    changed_bytes: int = 0


@dataclass(frozen=True)
class _Stacked:
    """A slice put into another array, at the place where it came from."""

    into: int
    slice: _Slice


class _State:
    """All that the loop goes with."""


_Value: TypeAlias = "_Part | _Scalar | _Slice | _Stacked | _State | tuple[_Value, ...] | None"


def rewritten(program: Program) -> dict[str, Rewritten]:
    """By name, what is launched to write anew what hardly changes."""
    if len(program.by_id) > _LARGEST_PROGRAM:
        return {}
    found: dict[str, Rewritten] = {}
    looks = _Looks(_MOST_LOOKS_RATIO * len(program.by_id))
    for loop in program.by_id.values():
        if loop.opcode == "while" and loop.called:
            found |= dict(_Loop(program, loop, looks).found())
    return found


class _Looks:
    """How many more instructions may be looked at: in a file that is damaged, computations may call
    each other in circles."""

    def __init__(self, left: int) -> None:
        self.left = left

    def one_more(self) -> bool:
        """Whether it may be."""
        self.left -= 1
        return self.left >= 0


class _Loop:
    def __init__(self, program: Program, loop: Instruction, looks: _Looks) -> None:
        self.program, self.loop, self.looks = program, loop, looks
        self.inside = program.computations.get(loop.called[0], [])
        self.root = program.by_id.get(program.roots.get(loop.called[0], -1))
        self.keys: dict[tuple[object, ...], int] = {}
        self.value: dict[int, _Value] = {}

    def found(self) -> Iterator[tuple[str, Rewritten]]:
        """The launches inside of the loop, and those around it that its second array takes."""
        if self.root is None or self.root.opcode != "tuple":
            return
        self._evaluate(self.inside, [_State()], self.value, 0)
        given_back = [self.value.get(number) for number in self.root.operands]
        kept = {n for n, v in enumerate(given_back) if isinstance(v, _Part) and v.number == n}
        stacks = {
            number: value.slice
            for number, value in enumerate(given_back)
            if isinstance(value, _Stacked)
            and value.into == number
            and value.slice.of in kept | {number}
        }
        stacks = {number: one for number, one in stacks.items() if _hardly_changes(one)}
        if not stacks:
            return
        at = self.program.place_of(self.loop)
        sources = {one.of: one for one in stacks.values()}
        copied = self._read_by_others(sources)
        for one in self._launched():
            values = _flat(self.value.get(one.id))
            mine = [_slice_of(value, sources, stacks) for value in values]
            if mine and all(mine):
                changed = sum(s.changed_bytes for s in mine if s) / sum(s.bytes for s in mine if s)
                back = [value.slice for value in values if isinstance(value, _Stacked)]
                stays = 1.0 if any(of.of in copied for of in back) else changed
                yield one.name, Rewritten(at, changed, stays, sum(of.bytes for of in back) or None)
        others = {number: one for number, one in stacks.items() if one.of != number}
        yield from self._around(others, at)

    # --------------------------------------------------------------------------------------------
    # What the values inside of the loop are.

    def _evaluate(
        self,
        inside: Iterable[Instruction],
        given: Sequence[_Value],
        values: dict[int, _Value],
        depth: int,
    ) -> None:
        for one in inside:
            if not self.looks.one_more():
                break
            values[one.id] = self._value_of(one, given, values, depth)

    def _value_of(
        self,
        one: Instruction,
        given: Sequence[_Value],
        values: Mapping[int, _Value],
        depth: int,
    ) -> _Value:
        operands = [values.get(i) for i in one.operands]
        first = operands[0] if operands else None
        match one.opcode:
            case "parameter":
                return given[one.parameter] if one.parameter < len(given) else None
            case "tuple":  # in another one it is nothing that is followed
                return tuple(None if isinstance(value, tuple) else value for value in operands)
            case "get-tuple-element":
                return self._element(one, first)
            case "bitcast" | "reshape" | "copy":
                whole = one.opcode == "copy" and isinstance(first, _Part)  # another array
                return None if whole and one.shape.elements > 1 else first
            case "fusion" | "call" if one.called and depth < _DEEPEST:
                mine: dict[int, _Value] = {}
                called = one.called[0]
                self._evaluate(self.program.computations.get(called, []), operands, mine, depth + 1)
                return mine.get(self.program.roots.get(called, -1))
            case "dynamic-slice":
                return self._taken(one, first, operands[1:])
            case "dynamic-update-slice":
                return self._put(one, operands)
            case "select":  # of a slice as it was and as it is: where an index may be out of bounds
                return _either(operands[1:]) or self._scalar(one, operands)
            case "scatter" if isinstance(first, _Slice) and len(one.operands) == 3:
                return _changed(first, self._bytes(one, 2))
        return self._scalar(one, operands)

    def _element(self, one: Instruction, of: _Value) -> _Value:
        if isinstance(of, _State):
            return _Part(one.tuple_index)
        if isinstance(of, tuple) and one.tuple_index < len(of):
            return of[one.tuple_index]
        return None

    def _taken(self, one: Instruction, of: _Value, at: Sequence[_Value]) -> _Value:
        if not isinstance(of, _Part):
            return None
        whole = self.program.operands(one)[0].shape.dimensions
        place = self._place(at, one.shape.dimensions, whole)
        return None if place is None else _Slice(of.number, place, one.shape.bytes)

    def _put(self, one: Instruction, operands: Sequence[_Value]) -> _Value:
        into, update, at = operands[0], operands[1] if len(operands) > 1 else None, operands[2:]
        if isinstance(into, _Slice):
            return _changed(into, self._bytes(one, 1))
        if not isinstance(into, _Part) or not isinstance(update, _Slice):
            return None
        sizes = self.program.operands(one)[1].shape.dimensions
        place = self._place(at, sizes, one.shape.dimensions)
        same = place is not None and place == update.place
        return _Stacked(into.number, update) if same else None

    def _place(
        self, at: Sequence[_Value], sizes: Sequence[int], whole: Sequence[int]
    ) -> tuple[int | None, ...] | None:
        """Where a slice is: its place along what it is shorter than; None where that is not known,
        or it is shorter than nothing."""
        if not len(at) == len(sizes) == len(whole):
            return None
        place: list[int | None] = []
        for value, size, of in zip(at, sizes, whole, strict=True):
            if size == of:
                place.append(None)
            elif (key := self._key(value)) is not None:
                place.append(key)
            else:
                return None
        return tuple(place) if any(key is not None for key in place) else None

    def _key(self, value: _Value) -> int | None:
        """The same for numbers that are the same: parts of the loop, and what is made of them."""
        if isinstance(value, _Part):
            return self.keys.setdefault(("part", value.number), len(self.keys))
        if isinstance(value, _Slice) and not value.changed_bytes and value.bytes <= _INDEX_BYTES:
            told = ("element", value.of, value.place)  # of the indices that a scan goes through
            return self.keys.setdefault(told, len(self.keys))
        return value.key if isinstance(value, _Scalar) else None

    def _scalar(self, one: Instruction, operands: Sequence[_Value]) -> _Value:
        if one.shape.parts or one.shape.elements != 1:
            return None
        keys = [self._key(value) for value in operands]
        if None in keys or not (keys or one.opcode == "constant"):
            return None
        told = (one.opcode, one.shape.type, *one.spelt_out, *keys)
        return _Scalar(self.keys.setdefault(told, len(self.keys)))

    def _bytes(self, one: Instruction, at: int) -> int:
        operand = self.program.by_id.get(one.operands[at])
        return 0 if operand is None else operand.shape.bytes

    # --------------------------------------------------------------------------------------------
    # What is launched for it.

    def _launched(self) -> Iterator[Instruction]:
        return (one for one in self.inside if one.opcode not in NO_WORK)

    def _read_by_others(self, sources: Mapping[int, _Slice]) -> set[int]:
        """Arrays whose slices lie in memory by themselves and are read by something else, too."""
        found: set[int] = set()
        for one in self._launched():
            mine = {v.of for v in _flat(self.value.get(one.id)) if isinstance(v, _Slice)}
            mine = (mine & sources.keys()) - found
            if mine and any(self._does_else(reader) for reader in self._readers(one)):
                found |= mine
        return found

    def _does_else(self, one: Instruction) -> bool:
        values = _flat(self.value.get(one.id))
        return not any(isinstance(value, (_Slice, _Stacked)) for value in values)

    def _readers(self, one: Instruction) -> Iterator[Instruction]:
        """Through what starts nothing."""
        waiting, seen = [one], {one.id}
        while waiting:
            for user in self.program.users.get(waiting.pop().id, ()):
                if user.id in seen or user is self.root or not self.looks.one_more():
                    continue
                seen.add(user.id)
                if user.opcode in NO_WORK:
                    waiting.append(user)
                else:
                    yield user

    def _around(
        self, stacks: Mapping[int, _Slice], at: str | None
    ) -> Iterator[tuple[str, Rewritten]]:
        """What fills the second array before the loop, and what copies it after."""
        first = self.program.operands(self.loop)[:1]
        for number in stacks:
            if first and first[0].opcode == "tuple" and number < len(first[0].operands):
                filled = self._below(self.program.by_id.get(first[0].operands[number]))
                if filled is not None and self._is_overwritten(filled, first[0], stacks):
                    yield filled.name, Rewritten(at, 0.0, 0.0)
        for user in self.program.users.get(self.loop.id, ()):
            if user.opcode == "get-tuple-element" and user.tuple_index in stacks:
                for reader in self._readers(user):
                    if reader.opcode == "copy":
                        yield reader.name, Rewritten(at, 0.0, 0.0, None, reader.shape.bytes)

    def _below(self, one: Instruction | None) -> Instruction | None:
        for _ in range(_DEEPEST):  # of itself, in a file that is damaged
            if one is None or one.opcode not in ("bitcast", "get-tuple-element"):
                break
            one = next(iter(self.program.operands(one)), None)
        return one

    def _is_overwritten(
        self, filled: Instruction, first: Instruction, stacks: Mapping[int, _Slice]
    ) -> bool:
        """Whether nothing reads what an array was filled with: the loop writes each slice of it."""
        if filled.opcode in NO_WORK or (times := self.loop.iterations) is None:
            return False
        waiting, seen = [filled], {filled.id}
        while waiting:
            one = waiting.pop()
            for user in self.program.users.get(one.id, ()):
                if user is first:
                    at = [n for n, i in enumerate(first.operands) if i == one.id]
                    whole = one.shape.bytes
                    if not all(n in stacks and stacks[n].bytes * times == whole for n in at):
                        return False
                elif user.opcode not in ("bitcast", "get-tuple-element"):
                    return False
                elif user.id not in seen:
                    seen.add(user.id)
                    waiting.append(user)
        return True


def _changed(one: _Slice, by_bytes: int) -> _Slice:
    return replace(one, changed_bytes=min(one.changed_bytes + by_bytes, one.bytes))


def _either(values: Sequence[_Value]) -> _Slice | None:
    """The slice that all of these are, with what any of them changes."""
    slices = [value for value in values if isinstance(value, _Slice)]
    if not slices or len(slices) < len(values) or len({(v.of, v.place) for v in slices}) > 1:
        return None
    return max(slices, key=lambda one: one.changed_bytes)


def _hardly_changes(one: _Slice) -> bool:
    return one.bytes >= _LEAST_BYTES and one.changed_bytes <= _MOST_CHANGED * one.bytes


def _flat(value: _Value) -> Sequence[_Value]:
    return value if isinstance(value, tuple) else (value,)


def _slice_of(
    value: _Value, sources: Mapping[int, _Slice], stacks: Mapping[int, _Slice]
) -> _Slice | None:
    """The slice that it is, if that is one of these."""
    if isinstance(value, _Stacked):
        return value.slice if value.into in stacks else None
    if not isinstance(value, _Slice) or value.of not in sources:
        return None
    return value if value.place == sources[value.of].place else None
