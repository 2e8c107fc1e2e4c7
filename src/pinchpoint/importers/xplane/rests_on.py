"""Which operations of a compiled program rest on nothing but arguments that others do not make.

Forwards from the arguments, through fusions, loops and branches. An argument *may change* from call
to call if it was given to be changed, if it is a single number, or if a program of the recording
gives an array of its type and shape. What rests on none of these, on nothing from outside and on no
state of a generator is told with the arguments that it rests on; whether each call was given the
same ones, who holds the arrays knows.
"""

import json
from collections.abc import Sequence

from pinchpoint.importers.xplane.hlo import NO_WORK, Instruction, Program
from pinchpoint.importers.xplane.shapes import Shape
from pinchpoint.regex import regex

_LARGEST_PROGRAM = 200_000  # instructions: more take a second to go through
_MOST_SHAPES = 32  # of arguments that one operation rests on
_MOST_NAMES = 4  # of arguments that are told
_NAMES = {
    1: "bool", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "uint8", 7: "uint16", 8: "uint32",
    9: "uint64", 10: "float16", 11: "float32", 12: "float64", 15: "complex64", 16: "bfloat16",
    18: "complex128",
}  # fmt: skip
_LAID_OUT = frozenset(("parameter", "bitcast", "copy", "transpose", "reshape", "tuple"))
_OUTSIDE = frozenset(
    ("infeed", "outfeed", "recv", "recv-done", "rng", "rng-get-and-update-state", "partition-id",
     "replica-id")
)  # fmt: skip
_CALLS_BACK = regex(r"callback|python|host")
_ARGUMENT = regex(r"\w+")  # ``params`` of ``params['w']``

Look = tuple[int, tuple[int, ...]]  # type and sizes


def gives(program: Program) -> set[Look]:
    """Types and sizes of all arrays that it gives."""
    root = program.by_id.get(program.roots.get(program.entry, -1))
    return {_look(part) for part in root.shape.parts or [root.shape]} if root else set()


def rests_on(program: Program, given: set[Look]) -> dict[str, str]:
    """By name of what is launched, the arguments as JSON: their names, ``[type, sizes, how many the
    program has of these]``, and how many of its arguments are single numbers."""
    entry = program.computations.get(program.entry, ())
    arguments = {one.parameter: one for one in entry if one.opcode == "parameter"}
    if not arguments or len(program.by_id) > _LARGEST_PROGRAM:
        return {}
    changing = 1 << (max(arguments) + 1)  # what is from outside
    for number, one in arguments.items():
        fixed = one.shape.elements > 1 and number not in program.donated
        if not fixed or _look(one.shape) in given or one.shape.type not in _NAMES:
            changing |= 1 << number
    walk = _Walk(program, outside=1 << (max(arguments) + 1))
    walk.computation(program.entry, [1 << number for number in range(max(arguments) + 1)])
    told: dict[int, str] = {}
    found = {}
    for one in program.by_id.values():
        mask = walk.masks.get(one.id)
        if mask is None or mask & changing or one.opcode in NO_WORK or one.id in walk.fused:
            continue
        if _only_lays_out(program, one):
            continue
        if mask not in told:
            told[mask] = _told([a for n, a in arguments.items() if mask >> n & 1], arguments)
        found[one.name] = told[mask]
    return {name: text for name, text in found.items() if text}


def _only_lays_out(program: Program, one: Instruction) -> bool:
    """Whether it brings an array into the order in which something else reads it: that is XLA's
    choice, and nothing that the program could keep."""
    inside = [i for n in one.called for i in program.computations.get(n, ())]
    return all(i.opcode in _LAID_OUT for i in (inside if one.opcode == "fusion" else (one,)))


class _Walk:
    """Each instruction's arguments as bits of a number."""

    def __init__(self, program: Program, outside: int) -> None:
        self.program, self.outside = program, outside
        self.masks: dict[int, int] = {}
        self.fused: set[int] = set()  # parts of a fusion are launched with it

    def computation(self, number: int, given: Sequence[int], *, fused: bool = False) -> int:
        """From what each of its parameters rests on to what its result does."""
        root, result = self.program.roots.get(number, -1), 0
        for one in self.program.computations.get(number, ()):
            self.masks[one.id] = mask = self._of(one, given)
            if fused:
                self.fused.add(one.id)
            if one.id == root:
                result = mask
        return result

    def _of(self, one: Instruction, given: Sequence[int]) -> int:
        if one.opcode == "parameter":
            return given[one.parameter] if one.parameter < len(given) else self.outside
        operands = [self.masks.get(number, self.outside) for number in one.operands]
        every = 0
        for mask in operands:
            every |= mask
        if one.opcode in _OUTSIDE or _CALLS_BACK.search(one.target):
            return every | self.outside
        if one.opcode == "fusion" and one.called:
            return self.computation(one.called[0], operands, fused=True)
        if one.opcode == "call" and one.called:
            return self.computation(one.called[0], operands)
        return self._of_branches(one, operands, every)

    def _of_branches(self, one: Instruction, operands: Sequence[int], every: int) -> int:
        """With what the computations of a condition or a loop add."""
        if one.opcode == "conditional":
            for number, mask in zip(one.called, operands[1:], strict=False):
                every |= self.computation(number, [mask | operands[0]])
        if one.opcode == "while":
            for _ in range(2):  # what one iteration takes from outside, the next one has
                for number in one.called:
                    every |= self.computation(number, [every])
        return every


def _told(arguments: Sequence[Instruction], every: dict[int, Instruction]) -> str:
    looks = sorted({_look(one.shape) for one in arguments})
    if len(looks) > _MOST_SHAPES:
        return ""
    counts = [sum(_look(other.shape) == look for other in every.values()) for look in looks]
    names = {found[0] for one in arguments if (found := _ARGUMENT.match(one.scope or one.name))}
    return json.dumps(
        {
            "names": sorted(names)[:_MOST_NAMES],
            "arrays": [
                [_NAMES[kind], sizes, count]
                for (kind, sizes), count in zip(looks, counts, strict=True)
            ],
            "numbers": sum(one.shape.elements <= 1 for one in every.values()),
        }
    )


def _look(shape: Shape) -> Look:
    return shape.type, shape.dimensions
