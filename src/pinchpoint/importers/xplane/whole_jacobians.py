"""Jacobians and Hessians of which a compiled program uses but products with vectors, or the trace.

``jax.jacfwd``, ``jax.jacrev`` and ``jax.hessian`` push the rows of an identity forward, or pull
them back, all at once: a comparison of two counters from which operations under ``vmap(jvp(`` or
``vmap(transpose(jvp(`` follow. What they give leaves that scope in some places. Where each of these
multiplies it with vectors, a few passes for these do; where it is the sum of the diagonal, products
with random signs estimate it.
"""

from typing import NamedTuple

from pinchpoint.importers.xplane.flow import Flow
from pinchpoint.importers.xplane.hlo import NO_WORK, Instruction, Program
from pinchpoint.importers.xplane.other_way import OtherWay
from pinchpoint.regex import regex

_LARGEST_PROGRAM = 200_000  # instructions: more take a second to go through
_OF_A_JACOBIAN = regex(r"vmap\((transpose\()?jvp\(")
_LAID_OUT = frozenset(("bitcast", "copy", "transpose", "reshape", "convert", "broadcast"))
_ANY_NUMBER = frozenset(("reduce", *_LAID_OUT))
_FEWEST_PASSES = 8  # of an identity: of fewer a few products take as long
_MOST_VECTORS_RATIO = 0.25  # of the passes: a product takes up to two
_PASSES_OF_A_PRODUCT = 2.0  # one forward and one back, at most


class _Used(NamedTuple):
    """What leaves the scope of a Jacobian, and how it is used."""

    kind: str  # jacobian, trace
    vectors: float


def whole_jacobians(program: Program) -> dict[str, OtherWay]:
    """By name of what is launched for such a Jacobian."""
    if len(program.by_id) > _LARGEST_PROGRAM:
        return {}
    eyes = [one for one in program.by_id.values() if _may_be_an_identity(one)]
    if not eyes or not any(_OF_A_JACOBIAN.search(one.scope) for one in program.by_id.values()):
        return {}
    walk = _Walk(program)
    by_size: dict[int, list[Instruction]] = {}
    for eye in eyes:  # each fusion that needs the identity has one of its own
        by_size.setdefault(eye.shape.dimensions[0], []).append(eye)
    return {name: way for same in by_size.values() for name, way in walk.told(same).items()}


def _may_be_an_identity(one: Instruction) -> bool:
    sizes = one.shape.dimensions
    square = len(sizes) == 2 and sizes[0] == sizes[1] >= _FEWEST_PASSES
    return one.opcode == "compare" and one.spelt_out[1] == "EQ" and square


class _Walk(Flow):
    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.entry = program.roots.get(program.entry, -1)

    def told(self, eyes: list[Instruction]) -> dict[str, OtherWay]:
        """Of identities of one size, by name of what is launched."""
        passed: set[int] = set()
        left: list[tuple[int, int]] = []
        for eye in eyes:
            sides = [self._below(number) for number in eye.operands]
            if all(side is not None and side.opcode == "iota" for side in sides):
                more_passed, more_left = self._passed(eye.id)
                passed |= more_passed
                left += more_left
        used = [self._use(number, reader) for reader, number in {r: n for n, r in left}.items()]
        vectors, passes = sum(one.vectors for one in used if one), eyes[0].shape.dimensions[0]
        if not used or None in used or vectors > _MOST_VECTORS_RATIO * passes:
            return {}
        kind = "trace" if "trace" in {one.kind for one in used if one} else "jacobian"
        ratio = min(_PASSES_OF_A_PRODUCT * vectors / passes, 1.0)
        way = OtherWay(kind, ratio, 0, self._place_of_use(passed, left))
        return dict.fromkeys(self._launched(passed), way)

    def _place_of_use(self, passed: set[int], left: list[tuple[int, int]]) -> str | None:
        """Where it is multiplied or summed; not in the function that was differentiated."""
        inside = {self.program.place_of(self.program.by_id[number]) for number in passed}
        places = [self.program.place_of(self.program.by_id[reader]) for _, reader in left]
        return next((p for p in places if p not in inside), None) or next(iter(places), None)

    def _passed(self, eye: int) -> tuple[set[int], list[tuple[int, int]]]:
        """What is computed for all rows of the identity; and what of it others read, by whom."""
        passed: set[int] = set()
        left: list[tuple[int, int]] = []
        waiting, seen = [(eye, False)], {(eye, False)}
        while waiting:
            number, inside = waiting.pop()
            if inside and number == self.entry:
                left.append((number, number))  # the program gives it
            for reader, _ in self.readers[number]:
                one = self.program.by_id[reader]
                computes = _OF_A_JACOBIAN.search(self._scope(one)) is not None
                if computes:
                    passed.add(reader)
                elif one.opcode not in _LAID_OUT:
                    left += [(number, reader)] if inside else []
                    continue
                if (reader, inside or computes) not in seen:
                    seen.add((reader, inside or computes))
                    waiting.append((reader, inside or computes))
        return passed, left

    def _scope(self, one: Instruction) -> str:
        """Its own, or that of the fusion that it is a part of."""
        around = self.fused.get(self.inside[one.id])
        return one.scope if one.scope or around is None else around.scope

    def _use(self, number: int, reader: int) -> _Used | None:
        """None where all of it is wanted, or nobody knows what for."""
        one, given = self.program.by_id[reader], self.program.by_id[number]
        if one.is_product and one.contracted:
            return self._product(one, given)
        if one.opcode == "multiply" and self._summed_alone(reader):
            sides = [self._made_by(o) for o in one.operands]
            others = [s for s in sides if s is not None and s.id != number]
            spread = len(others) == 1 and others[0].opcode == "broadcast"
            below = self._below(others[0].id) if spread else None
            few = below is not None and below.shape.elements < one.shape.elements
            return _Used("jacobian", 1.0) if few else None
        if one.opcode == "select" and self._summed_alone(reader):
            predicate = self._below(one.operands[0])
            if predicate is not None and _may_be_an_identity(predicate):
                return _Used("trace", 1.0)
        return None

    def _product(self, one: Instruction, given: Instruction) -> _Used | None:
        """With how many vectors, of each of several Jacobians alike."""
        sides = self.program.operands(one)[:2]
        terms, result = self.program.flops(one) // 2, one.result.elements
        if len(sides) < 2 or not terms or not result:
            return None
        ours = [s for s in sides if s.result.elements == given.result.elements]
        if not ours:
            return None
        other = sides[1] if ours[0] is sides[0] else sides[0]
        summed = terms // result
        alike = max(round(given.result.elements * other.result.elements * result / terms**2), 1)
        return _Used("jacobian", max(other.result.elements / max(summed * alike, 1), 1.0))

    def _summed_alone(self, number: int) -> bool:
        """Whether nothing but sums read a value."""
        waiting, seen = [number], {number}
        while waiting:
            readers = [reader for reader, _ in self.readers[waiting.pop()]]
            if not readers:
                return False
            for reader in readers:
                opcode = self.program.by_id[reader].opcode
                if opcode not in _ANY_NUMBER or opcode == "broadcast":
                    return False
                if opcode != "reduce" and reader not in seen:
                    seen.add(reader)
                    waiting.append(reader)
        return True

    def _made_by(self, number: int) -> Instruction | None:
        made = self.made(number)
        return self.program.by_id[made[0]] if len(made) == 1 else None

    def _below(self, number: int) -> Instruction | None:
        """What makes a value, below its layout, its type and what repeats it."""
        seen: set[int] = set()  # of itself, in a file that is damaged
        while number not in seen:
            seen.add(number)
            one = self._made_by(number)
            if one is None or one.opcode not in _LAID_OUT or not one.operands:
                return one
            number = one.operands[0]
        return None

    def _launched(self, passed: set[int]) -> set[str]:
        around = (self.fused.get(self.inside[n], self.program.by_id[n]) for n in passed)
        return {one.name for one in around if one.opcode not in NO_WORK}
