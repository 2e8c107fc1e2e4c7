"""Products of compiled programs that the structure of what they multiply makes needless.

Found backwards from each matrix product, through fusions and layouts. A matrix is one of *class
numbers* if each of its elements says whether a number is that of its row or column (``one_hot``),
and *diagonal* if a comparison of two counters chooses a vector or zero. A product of a product is
in a costly *order* if nothing but products reads what it gives, and all of them take half of the
operations or less the other way round.
"""

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from pinchpoint.importers.xplane.flow import Flow
from pinchpoint.importers.xplane.hlo import Instruction, Program
from pinchpoint.regex import regex


class OtherWay(NamedTuple):
    """How an instruction's result comes about otherwise."""

    kind: str  # rows, sums, diagonal, order; jacobian, trace
    left_ratio: float  # of its FLOPs that stay
    left_bytes: int  # that the other way reads and writes in its place
    at: str | None = None  # the line that says so, where that is another one


_LARGEST_PROGRAM = 200_000  # instructions: more take a second to go through
_LEAST_ELEMENTS = 1 << 12  # of a structured matrix: below, a launch takes longer than the work
_FEWEST_CLASSES = 32  # of fewer a product may be the fastest way: it is one of many others' columns
_MOST_LEFT = 0.5  # of the FLOPs in another order: below that rounding and shapes decide
_LAID_OUT = frozenset(("bitcast", "copy", "transpose", "reshape", "convert"))
_EQUAL = "EQ"
_BACKWARD = "transpose("  # of a scope: what JAX derives from the forward pass
_PLAIN = b'"epilogue":"DEFAULT"'  # of a product by cuBLAS: nothing but the product
# What JAX pushes forward or pulls back for the columns of an identity: no matrix of the program's.
_OF_A_JACOBIAN = regex(r"vmap\((transpose\()?jvp\(")


def other_ways(program: Program) -> dict[str, OtherWay]:
    """By name of what is launched."""
    if len(program.by_id) > _LARGEST_PROGRAM:
        return {}
    products = [one for one in program.by_id.values() if one.is_product and one.contracted]
    if not products:
        return {}
    return _Products(program, products).found()


class _Products(Flow):
    def __init__(self, program: Program, products: list[Instruction]) -> None:
        super().__init__(program)
        self.products = {one.id: one for one in products}

    def found(self) -> dict[str, OtherWay]:
        told: dict[int, OtherWay] = {}
        for one in self.products.values():
            way = None if _OF_A_JACOBIAN.search(one.scope) else self._of_structure(one)
            if way is not None:
                told[one.id] = way
        told = self._as_written(told)
        for first in self.products.values():
            told |= {number: way for number, way in self._of_order(first) if number not in told}
        told |= self._made_for(told)
        return {self._launched_by(number).name: way for number, way in told.items()}

    def _as_written(self, told: dict[int, OtherWay]) -> dict[int, OtherWay]:
        """What is derived for the backward pass has the kind of what the program wrote there."""
        written = {}
        for number, way in told.items():
            one = self.program.by_id[number]
            if _BACKWARD not in one.scope:
                written[self.program.place_of(one)] = way.kind
        return {
            number: way._replace(
                kind=written.get(self.program.place_of(self.program.by_id[number]), way.kind)
            )
            for number, way in told.items()
        }

    def _launched_by(self, number: int) -> Instruction:
        one = self.program.by_id[number]
        return self.fused.get(self.inside[number], one)

    def _made_for(self, told: dict[int, OtherWay]) -> dict[int, OtherWay]:
        """Matrices that nobody but such products reads."""
        made: dict[int, OtherWay] = {}
        for number, way in told.items():
            for source, _ in self.sources[number] if way.kind != "order" else ():
                alone = {reader for reader, _ in self.readers[source]} <= told.keys()
                if alone and source not in told and self._structure(source) is not None:
                    made[source] = OtherWay(way.kind, 0.0, 0)
        return made

    # Matrices of class numbers, and diagonal ones

    def _of_structure(self, one: Instruction) -> OtherWay | None:
        """Of two such operands that of the first."""
        operands = self.program.operands(one)[:2]
        first = operands[0].result.dimensions if operands else ()
        summed = prod(first[at] for at in one.contracted if at < len(first))
        for at, operand in enumerate(operands):
            found = self._structure(operand.id)
            if found is None or operand.result.elements < _LEAST_ELEMENTS:
                continue
            kind, numbers, classes = found
            written, other = one.result.bytes, operands[1 - at].result.bytes
            if kind == "diagonal":
                return OtherWay(kind, 0.0, other + written)
            if summed == classes:
                return OtherWay("rows", 0.0, 2 * written)
            if summed == numbers:
                return OtherWay("sums", 0.0, other + 2 * written)
        return None

    def _structure(self, number: int) -> tuple[str, int, int] | None:
        """Its kind, how many numbers it rests on, and of how many classes they are."""
        one = self._below(number)
        if one is None:
            return None
        if one.opcode == "compare" and one.spelt_out[1] == _EQUAL:
            return self._class_numbers(one)
        if one.opcode in ("select", "multiply") and self._is_diagonal(one):
            return "diagonal", one.shape.dimensions[-1], one.shape.dimensions[-1]
        return None

    def _class_numbers(self, one: Instruction) -> tuple[str, int, int] | None:
        sides = [self._spread(number) for number in one.operands]
        others = [side for side in sides if side is not None and side.opcode != "iota"]
        if len(sides) != 2 or len(others) != 1 or None in sides:
            return None
        numbers = others[0].shape.elements
        classes = one.shape.elements // max(numbers, 1)
        enough = classes >= _FEWEST_CLASSES and numbers * classes == one.shape.elements
        return ("numbers", numbers, classes) if enough else None

    def _is_diagonal(self, one: Instruction) -> bool:
        """A vector where two counters are the same, and nothing elsewhere."""
        sizes, operands = one.shape.dimensions, one.operands
        if len(sizes) != 2 or sizes[0] != sizes[1]:
            return False
        if one.opcode == "select":
            chosen = self._is_identity(operands[0]) and self._is_vector(operands[1], sizes[0])
            return chosen and self._is_constant(operands[2])
        return any(
            self._is_identity(a) and self._is_vector(b, sizes[0])
            for a, b in (operands, operands[::-1])
        )

    def _is_identity(self, number: int) -> bool:
        one = self._below(number)
        if one is None or one.opcode != "compare" or one.spelt_out[1] != _EQUAL:
            return False
        sides = [self._spread(number) for number in one.operands]
        return all(side is not None and side.opcode == "iota" for side in sides)

    def _is_vector(self, number: int, size: int) -> bool:
        one, below = self._below(number), self._spread(number)
        if one is None or below is None:
            return False
        return one.opcode == "broadcast" and below.shape.elements == size

    def _is_constant(self, number: int) -> bool:
        below = self._spread(number)
        return below is not None and below.opcode == "constant"

    def _below(self, number: int) -> Instruction | None:
        """What makes a value, below its layout and type."""
        return self._through(number, _LAID_OUT)

    def _spread(self, number: int) -> Instruction | None:
        """The same, below what repeats it."""
        return self._through(number, _LAID_OUT | {"broadcast"})

    def _through(self, number: int, opcodes: frozenset[str]) -> Instruction | None:
        seen: set[int] = set()  # of itself, in a file that is damaged
        while number not in seen:
            seen.add(number)
            made = self.made(number)
            one = self.program.by_id[made[0]] if len(made) == 1 else None
            if one is None or one.opcode not in opcodes or not one.operands:
                return one
            number = one.operands[0]
        return None

    # The order of products

    def _of_order(self, first: Instruction) -> Iterator[tuple[int, OtherWay]]:
        """Of a product that other products alone read, with these.

        Whichever side of it they sum over: (A B) C is as much as A (B C) with C (A B) and (C A) B.
        """
        readers, sizes = self._readers(first.id), first.result.dimensions
        inner = self._summed(first)
        if not readers or len(sizes) != 2 or inner is None or _has_epilogue(first):
            return
        now, after = self.program.flops(first), 0
        for reader in readers:
            summed = self._summed(reader)
            if summed not in sizes:
                return
            columns = sizes[0] * sizes[1] // summed
            now += self.program.flops(reader)
            after += 2 * inner * sum(sizes) * (reader.result.elements // columns)
        if after <= _MOST_LEFT * now:
            for one in (first, *readers):
                yield one.id, OtherWay("order", after / now, 0)

    def _readers(self, number: int) -> list[Instruction] | None:
        """The products that read a value; None where anything else does."""
        found: dict[int, Instruction] = {}
        waiting, seen = [number], {number}
        while waiting:
            for reader, _ in self.readers[waiting.pop()]:
                one = self.program.by_id[reader]
                if reader in self.products:
                    found[reader] = one
                elif one.opcode not in _LAID_OUT:
                    return None
                elif reader not in seen:
                    seen.add(reader)
                    waiting.append(reader)
        return list(found.values())

    def _summed(self, one: Instruction) -> int | None:
        """What a product of two matrices sums over; None for others."""
        operands = [operand.result.elements for operand in self.program.operands(one)[:2]]
        terms, elements = self.program.flops(one) // 2, one.result.elements
        if len(operands) < 2 or not elements or prod(operands) * elements != terms * terms:
            return None  # many products at once, or one of whole arrays
        return terms // elements


def _has_epilogue(one: Instruction) -> bool:
    """Whether a library adds something to the product, or bends it."""
    more = len(one.operands) > 2 or b'"epilogue"' in one.config.replace(_PLAIN, b"")
    return one.is_library and more
