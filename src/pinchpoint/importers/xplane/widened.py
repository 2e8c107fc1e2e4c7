"""Where a compiled program makes wider numbers of narrow ones, and which products then take them.

A value is *widened* if all that it rests on was narrow (bfloat16, float16; float32 under float64)
or is the same for all inputs (constants, indices): whatever is computed with it has more digits
than anything that went in. A float32 parameter is none, nor is what rests on one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from pinchpoint.frozen import dataclass
from pinchpoint.importers.xplane.hlo import Instruction, Program
from pinchpoint.importers.xplane.shapes import FLOATS

_LAID_OUT = frozenset(
    ("bitcast", "copy", "transpose", "reshape", "broadcast", "slice", "get-tuple-element", "tuple")
)
_LARGEST_PROGRAM = 200_000  # instructions: more take a second to go through


class Widened(NamedTuple):
    """What one instruction of a program computes with widened values."""

    at: str | None  # the line that widened them
    dtype: str  # what they are now
    spared_bytes: int  # of what it moves, if they were still narrow
    product: bool


@dataclass(frozen=True)
class _Origin:
    """What a value of a wider type rests on."""

    narrow: bool = False  # on narrow values that were widened
    wide: bool = False  # on values that were wide to begin with
    by: frozenset[int] = frozenset()  # the first instructions that compute with those
    of_product: bool = False  # on a product of widened values

    @property
    def widened(self) -> bool:
        return self.narrow and not self.wide


_Value: TypeAlias = "_Origin | tuple[_Value, ...]"
_NOTHING = _Origin()
_MOST_PLACES = 64  # instructions that are told of one value: the first ones


def widened(program: Program) -> dict[str, Widened]:
    """By name, the instructions of products that take widened values, and those that hand such
    values to them or take theirs. None where the program says that it wants the digits."""
    if program.entry not in program.computations or len(program.by_id) > _LARGEST_PROGRAM:
        return {}
    walk = _Walk(program)
    walk.computation(program.entry, [], None)
    return walk.found()


class _Walk:
    """Goes through computations in the order of their instructions: operands come first."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.origin: dict[int, _Value] = {}
        self.products: dict[int, tuple[Instruction, _Origin]] = {}  # by id: its owner
        self.owner: dict[int, Instruction] = {}  # by id, the instruction that is launched

    def computation(
        self, number: int, given: Sequence[_Value], owner: Instruction | None
    ) -> _Value:
        result: _Value = _NOTHING
        root = self.program.roots.get(number, -1)
        for one in self.program.computations.get(number, ()):
            self.owner[one.id] = owner or one
            self.origin[one.id] = value = self._value(one, given, owner)
            if one.id == root:
                result = value
        return result

    def _value(
        self, one: Instruction, given: Sequence[_Value], owner: Instruction | None
    ) -> _Value:
        operands = [self.origin.get(i, _NOTHING) for i in one.operands]
        if one.opcode == "parameter":
            at = one.parameter
            return given[at] if at < len(given) else _given(one.shape.type)
        if one.opcode == "tuple":
            return tuple(operands)
        if one.opcode == "get-tuple-element" and operands:
            inside = operands[0]
            if isinstance(inside, _Origin):
                return inside
            return inside[one.tuple_index] if one.tuple_index < len(inside) else _NOTHING
        if one.opcode in ("fusion", "call") and one.called:
            mine = owner or one if one.opcode == "fusion" else owner
            return self.computation(one.called[0], operands, mine)
        if one.opcode == "while" and len(one.called) > 1 and operands:
            return self._loop(one, operands[0], owner)
        return self._computed(one, operands, owner or one)

    def _loop(self, one: Instruction, first: _Value, owner: Instruction | None) -> _Value:
        value = first
        for _ in range(2):  # what one iteration makes, the next one takes
            value = _joined_values(value, self.computation(one.called[0], [value], owner))
        return value

    def _computed(self, one: Instruction, operands: Sequence[_Value], owner: Instruction) -> _Value:
        bits, sources = FLOATS.get(one.result.type), self.program.operands(one)
        if bits is None:
            return _NOTHING
        if one.opcode == "convert" and sources:
            before = FLOATS.get(sources[0].shape.type)
            if before is not None and before < bits:
                return _Origin(narrow=True)
        floats = [
            _joined((value,))
            for value, source in zip(operands, sources, strict=False)
            if FLOATS.get(source.result.type) == bits
        ]
        joined = _joined(floats)
        if joined.widened and not joined.by and one.opcode not in _NOT_FIRST:
            joined = replace(joined, by=frozenset((one.id,)))
        if one.is_product and not one.wants_digits and any(f.widened for f in floats):
            alike = [source for source in sources[:2] if FLOATS.get(source.result.type) == bits]
            if len(alike) == 2 and bits > _NARROWEST:
                self.products[one.id] = (owner, _joined(f for f in floats if f.widened))
                return replace(joined, of_product=True)
        return joined if bits > _NARROWEST else _NOTHING

    # --------------------------------------------------------------------------------------------

    def found(self) -> dict[str, Widened]:
        """By name of what is launched."""
        lines = {self.program.place_of(self.program.by_id[i]) for i in self.products}
        told: dict[str, Widened] = {}
        votes: Counter[str] = Counter()
        unsure: list[str] = []
        for number, (owner, origin) in self.products.items():
            product = self.program.by_id[number]
            places = Counter(place for place in self._made_wider(origin) if place not in lines)
            votes.update(places)
            at = next((place for place, _ in places.most_common(1)), None)
            if at is None and _BACKWARD in product.scope:
                unsure.append(owner.name)
            at = at or self.program.place_of(product)
            told[owner.name] = Widened(at, self._dtype(product), self._spared(owner), product=True)
        first = next((place for place, _ in votes.most_common(1)), None)
        for name in unsure:
            told[name] = told[name]._replace(at=first or told[name].at)
        for owner in self._around():
            if owner.name not in told:
                dtype = next((w.dtype for w in told.values()), "f32")
                told[owner.name] = Widened(first, dtype, self._spared(owner), product=False)
        return told

    def _made_wider(self, origin: _Origin) -> Iterator[str]:
        """Where the program itself computes with them first: not in what is derived from it."""
        for number in sorted(origin.by):
            one = self.program.by_id[number]
            place = None if _BACKWARD in one.scope else self.program.place_of(one)
            if place is not None:
                yield place

    def _dtype(self, product: Instruction) -> str:
        return _SPELT.get(product.result.type, "f32")

    def _around(self) -> Iterator[Instruction]:
        """What hands a widened value to such a product, or takes one that rests on its result."""
        seen: set[int] = set()
        for number in self.products:
            owner = self.products[number][0]
            for operand in self.program.operands(owner):
                below = self._below(operand)
                if self._is_widened(below.id) and below.id not in seen:
                    seen.add(below.id)
                    yield below
        for one in self.program.by_id.values():
            if self.owner.get(one.id) is one and one.id not in seen and one.opcode not in _LAID_OUT:
                operands = (self.origin.get(i, _NOTHING) for i in one.operands)
                if any(_joined((value,)).of_product for value in operands):
                    seen.add(one.id)
                    yield one

    def _below(self, one: Instruction) -> Instruction:
        seen: set[int] = set()  # of itself, in a file that is damaged
        while one.opcode in ("bitcast", "get-tuple-element") and one.operands:
            below = self.program.by_id.get(one.operands[0])
            if below is None or below.id in seen:
                break
            seen.add(below.id)
            one = below
        return one

    def _is_widened(self, number: int) -> bool:
        return _joined((self.origin.get(number, _NOTHING),)).widened

    def _spared(self, owner: Instruction) -> int:
        """Half of the widened values that it reads, and writes."""
        operands = [o for o in self.program.operands(owner) if self._is_widened(o.id)]
        written = [owner] if self._is_widened(owner.id) else []
        return sum(one.result.bytes for one in (*operands, *written)) // 2


_NARROWEST = 16  # bits: what is no wider was not widened
_SPELT = {11: "f32", 12: "f64"}
_BACKWARD = "transpose("  # of a scope: what JAX derives from the forward pass
# Layouts, and what says nothing of why: XLA converts together what several lines convert.
_NOT_FIRST = _LAID_OUT | {"convert", "concatenate", "pad", "dynamic-slice", "gather"}


def _given(kind: int) -> _Origin:
    """What the program is handed."""
    return _Origin(wide=True) if FLOATS.get(kind, 0) > _NARROWEST else _NOTHING


def _joined(values: Iterable[_Value]) -> _Origin:
    narrow = wide = of_product = False
    by: frozenset[int] = frozenset()
    for value in values:
        one = value if isinstance(value, _Origin) else _joined(value)
        narrow, wide = narrow or one.narrow, wide or one.wide
        of_product = of_product or one.of_product
        if len(by) < _MOST_PLACES:
            by |= one.by
    return _Origin(narrow, wide, by, of_product)


def _joined_values(one: _Value, other: _Value) -> _Value:
    if isinstance(one, _Origin) or isinstance(other, _Origin) or len(one) != len(other):
        return _joined((one, other))
    return tuple(_joined_values(a, b) for a, b in zip(one, other, strict=True))
