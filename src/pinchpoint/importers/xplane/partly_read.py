"""Of what compiled programs compute, how much is read: backwards from slices and gathers.

In each computation that launches anything, from its result to what that rests on. What is read of
an array is the sum over those that read it: the elements of a slice or a gather, what is read of
the result of elementwise work, all of it for anything else. Each element of a fusion or product can
be left out by itself. A sort cannot; of one whose keys are random bits (a permutation) what is
drawn may as well be drawn without it, and where one end of a sorted array is taken, a selection
finds that part.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from pinchpoint.frozen import dataclass
from pinchpoint.importers.xplane.hlo import NO_WORK, Instruction, Program
from pinchpoint.importers.xplane.shapes import Shape
from pinchpoint.regex import regex


class Needed(NamedTuple):
    """An instruction of whose result a part is read."""

    at: str | None  # the line that takes the part
    ratio: float  # of its work that this part needs
    kind: str  # results, permutation, sort
    taken_ratio: float = 0.0  # of a sorted array, what is taken

    @property
    def on_cpu_ratio(self) -> float:
        """The same on a CPU, where ``jax.lax.top_k`` keeps the best while it goes through all."""
        if self.kind != "sort":
            return self.ratio
        return min(_CPU_PASS_RATIO + _CPU_TAKEN_RATIO * self.taken_ratio, 1.0)


# Of what is computed; padded sizes leave out as much as half (``unused-work`` has the same).
_MOST_READ = 0.5
# Of a sorted or permuted array: beyond it a draw meets what was drawn, and a selection sorts.
_MOST_TAKEN = 0.25
# Of a sort by XLA on one core (110 to 190 ns a number), ``top_k`` of 0.05 to 25 % of rows of 1,000
# to 200,000 numbers took 0.7 to 33 %: this line is within a quarter of all five but one (0.6).
_CPU_PASS_RATIO, _CPU_TAKEN_RATIO = 0.01, 1.4
_LEAST_BYTES = 1 << 20  # of a result: below, a launch takes longer than the work
_SEED_BYTES = 4096  # keys of random numbers, counters, states; no data of a program is so small
_LARGEST_PROGRAM = 200_000  # instructions: more take a second to go through
_MOST_SEEN = 10_000  # instructions that random bits rest on
_TAKES = ("slice", "dynamic-slice", "gather")
_SAME = 1e-9  # two shares, as floats
_SORTS = regex(r"^(__cub\$DeviceRadixSort|xla\.gpu\.ext\.cub_sort)")
_SELECTS = regex(r"top_k")  # in a scope: XLA spells the framework's selection as a sort
_MIXES = ("xor", "rng", "rng-bit-generator")  # how random bits are made
_ELEMENTWISE = frozenset(
    ("abs", "add", "and", "atan2", "bitcast", "bitcast-convert", "cbrt", "ceil", "clamp",
     "compare", "convert", "cosine", "divide", "erf", "exponential", "exponential-minus-one",
     "floor", "is-finite", "log", "log-plus-one", "logistic", "maximum", "minimum", "multiply",
     "negate", "not", "or", "popcnt", "power", "remainder", "round-nearest-afz",
     "round-nearest-even", "rsqrt", "select", "shift-left", "shift-right-arithmetic",
     "shift-right-logical", "sign", "sine", "sqrt", "subtract", "tan", "tanh", "tuple", "xor")
)  # fmt: skip
_BETWEEN_BITS = _ELEMENTWISE | {"fusion", "iota", "get-tuple-element", *_MIXES}
# For a CPU the rounds of the mixing are a loop: over counters, words of the key and how far to turn
# each, nothing that sums or looks up data.
_IN_MIXING = _BETWEEN_BITS | {
    "broadcast",
    "call",
    "concatenate",
    "constant",
    "copy",
    "parameter",
    "reshape",
    "slice",
    "while",
}
_KEEP_PADDING = _ELEMENTWISE | {
    "fusion",
    "copy",
    "transpose",
    "reshape",
    "dot",
    "get-tuple-element",
}


def partly_read(program: Program) -> dict[str, Needed]:
    """By name, what is launched for more than is read of it."""
    if len(program.by_id) > _LARGEST_PROGRAM:
        return {}
    inside_fusions = {
        number
        for one in program.by_id.values()
        if one.opcode not in NO_WORK
        for number in one.called
    }
    found: dict[str, Needed] = {}
    for number in program.computations:
        if number not in inside_fusions:
            found |= _Walk(program, number).found()
    return found


@dataclass
class _Reads:
    """What is read of one array."""

    ratio: float = 0.0
    sliced: bool = True  # by slices of its ends alone
    at: str | None = None  # the first line that takes a part

    def more(self, ratio: float, at: str | None, *, sliced: bool = False) -> None:
        """Somebody else reads it."""
        self.ratio = min(self.ratio + ratio, 1.0)
        self.sliced = self.sliced and sliced
        self.at = self.at or at


class _Walk:
    def __init__(self, program: Program, number: int) -> None:
        self.program = program
        self.inside = program.computations[number]
        self.root = program.roots.get(number, -1)
        self.reads: dict[tuple[int, int], _Reads] = defaultdict(_Reads)  # by id and part of a tuple
        self.real = self._real()

    def found(self) -> Iterator[tuple[str, Needed]]:
        for one in reversed(self.inside):  # operands come first
            parts = [self.reads[one.id, at] for at in range(max(len(one.shape.parts), 1))]
            if one.id == self.root:
                for part in parts:
                    part.more(1.0, None)
            self._hand_on(one, parts)
            if one.shape.bytes >= _LEAST_BYTES and one.opcode not in NO_WORK:
                yield from self._judged(one, parts)

    def _judged(self, one: Instruction, parts: list[_Reads]) -> Iterator[tuple[str, Needed]]:
        read = [part for part in parts if part.ratio]
        most = max((part.ratio for part in read), default=1.0)  # nothing at all: it has effects
        at = next((part.at for part in read if part.at), None)
        if _sorts(one):
            if most <= _MOST_TAKEN and self._permutes(one, parts):
                yield one.name, Needed(at, most, "permutation")
            elif most <= _MOST_TAKEN and self._selects(one, read):
                yield one.name, Needed(at, self._selection_ratio(one), "sort", most)
        elif most >= self.real[one.id] - _SAME:  # what is cut off is what a product was padded with
            return
        elif most <= _MOST_READ and (one.opcode in ("fusion", "dot") or one.is_product):
            yield one.name, Needed(at, most, "results")

    def _real(self) -> dict[int, float]:
        """By id, the part of each result that is no padding, at least: XLA pads the operands of
        products to sizes that the tensor cores take, and cuts the result to its own again."""
        found: dict[int, float] = {}
        for one in self.inside:
            inner = [i for number in one.called for i in self.program.computations.get(number, ())]
            pads = [
                i for i in (one, *(inner if one.opcode == "fusion" else ())) if i.opcode == "pad"
            ]
            kept = min((_ratio(self._shape(i.operands[0]), i.shape) for i in pads), default=1.0)
            hands_on = one.opcode in _KEEP_PADDING or one.is_product
            before = (found.get(number, 1.0) for number in one.operands if hands_on)
            found[one.id] = kept * min(before, default=1.0)
        return found

    # What is read of operands

    def _hand_on(self, one: Instruction, parts: list[_Reads]) -> None:
        most = max((part.ratio for part in parts), default=1.0)
        at = next((part.at for part in parts if part.at), None)
        sliced, first = all(part.sliced for part in parts), one.operands[:1]
        ratios = [1.0] * len(one.operands)
        if one.opcode == "get-tuple-element" and first:
            self.reads[first[0], one.tuple_index].more(most, at, sliced=sliced)
            ratios = []
        elif one.opcode == "tuple":
            for operand, part in zip(one.operands, parts, strict=False):
                self._read(operand, part.ratio, part.at, sliced=part.sliced)
            ratios = []
        elif one.opcode == "fusion" and one.called:
            self._through_fusion(one, most, at)
            ratios = []
        elif one.opcode in ("bitcast", "reverse"):
            ratios = [most]
        elif one.opcode in _TAKES and first:
            ratios[0] = _ratio(one.shape, self._shape(first[0]))
            at, sliced = self.program.place_of(one), self._slices_an_end(one)
        elif _sorts(one):
            # One key; what goes with it is read wherever the part that is taken came from.
            ratios = [most if self._permutes(one, parts) else 1.0, *(most for _ in ratios[1:])]
            sliced = False
        else:
            sliced = False
        for operand, ratio in zip(one.operands, ratios, strict=False):
            self._read(operand, ratio, at if ratio < 1 else None, sliced=sliced)

    def _read(self, number: int, ratio: float, at: str | None, *, sliced: bool = False) -> None:
        operand = self.program.by_id.get(number)
        for part in range(max(len(operand.shape.parts), 1) if operand else 0):
            self.reads[number, part].more(ratio, at, sliced=sliced)

    def _slices_an_end(self, one: Instruction) -> bool:
        """Whether it takes the first or last of each row: a median is no selection of the best."""
        sizes = next((o.shape.dimensions for o in self.program.operands(one)), ())
        parts = zip(one.sliced, sizes, strict=False)
        ends = all(begin == 0 or until == size for (begin, until), size in parts)
        return one.opcode == "slice" and ends

    def _shape(self, number: int) -> Shape | None:
        operand = self.program.by_id.get(number)
        return None if operand is None else operand.shape

    def _through_fusion(self, one: Instruction, most: float, at: str | None) -> None:
        inside = self.program.computations.get(one.called[0], [])
        for parameter in (i for i in inside if i.opcode == "parameter"):
            if parameter.parameter >= len(one.operands):
                continue
            operand = one.operands[parameter.parameter]
            users = self._beyond_bitcasts(parameter)
            if users and all(_takes(user, of) for user, of in users):
                slices = all(self._slices_an_end(user) for user, _ in users)
                place = self.program.place_of(users[0][0])
                taken = sum(_ratio(user.shape, parameter.shape) for user, _ in users)
                self._read(operand, min(taken, 1.0), place, sliced=slices)
            else:
                self._read(operand, most if self._elementwise(one, parameter) else 1.0, at)

    def _beyond_bitcasts(self, one: Instruction) -> list[tuple[Instruction, int]]:
        """Who takes it, and under which number."""
        found: list[tuple[Instruction, int]] = []
        for user in self.program.users.get(one.id, []):
            same = user.opcode == "bitcast"
            found += self._beyond_bitcasts(user) if same else [(user, one.id)]
        return found

    def _elementwise(self, fusion: Instruction, parameter: Instruction) -> bool:
        """Whether each element of a fusion takes the element of the parameter at its place."""
        size = parameter.shape.elements
        if any(part.elements != size for part in (fusion.shape.parts or [fusion.shape])):
            return False
        waiting, seen = [parameter], {parameter.id}
        while waiting:
            for user in self.program.users.get(waiting.pop().id, []):
                if user.opcode not in _ELEMENTWISE:
                    return False
                if user.id not in seen:
                    seen.add(user.id)
                    waiting.append(user)
        return True

    # What a sort is for

    def _permutes(self, one: Instruction, parts: list[_Reads]) -> bool:
        """Whether its keys are random bits that nobody reads afterwards."""
        return len(one.operands) > 1 and not parts[0].ratio and self._random(one.operands[0])

    def _random(self, number: int) -> bool:
        waiting, seen, mixed = [number], {number}, False
        while waiting and len(seen) < _MOST_SEEN:
            one = self.program.by_id.get(waiting.pop())
            if one is None or one.opcode == "parameter":
                return False
            inner = [one, *self._called_by(one)]
            mixed = mixed or any(i.opcode in _MIXES for i in inner)
            loops = one.opcode == "while" and all(i.opcode in _IN_MIXING for i in inner)
            if not loops and one.opcode not in _BETWEEN_BITS:
                return False
            for operand in self.program.operands(one):
                if operand.shape.bytes > _SEED_BYTES and operand.id not in seen:
                    seen.add(operand.id)
                    waiting.append(operand.id)
        return mixed and not waiting

    def _called_by(self, one: Instruction) -> Iterator[Instruction]:
        """All in the computations that it calls, and that those call."""
        waiting, seen = list(one.called), set(one.called)
        while waiting:
            for inner in self.program.computations.get(waiting.pop(), ()):
                yield inner
                waiting += [number for number in inner.called if number not in seen]
                seen.update(inner.called)

    def _selects(self, one: Instruction, read: list[_Reads]) -> bool:
        """Whether nothing but slices of what it gives are taken, by a program that sorts."""
        return all(part.sliced for part in read) and not _SELECTS.search(one.scope)

    def _selection_ratio(self, one: Instruction) -> float:
        """Passes of a selection by digits over the keys, and of a sort over all that it moves."""
        operands = self.program.operands(one)
        key = _width(operands[0].shape) if operands else 0
        each_way = sum(_width(operand.shape) for operand in operands)
        return min((key + 1) * key / (2 * key * each_way), 1.0) if key else 1.0


def _sorts(one: Instruction) -> bool:
    return one.opcode == "sort" or _SORTS.match(one.target) is not None


def _takes(user: Instruction, of: int) -> bool:
    """Whether it takes a part of this array, which does not say which part as well."""
    return user.opcode in _TAKES and user.operands.index(of) == 0 and user.operands.count(of) == 1


def _ratio(part: Shape | None, of: Shape | None) -> float:
    if part is None or of is None or not of.elements:
        return 1.0
    return min(part.elements / of.elements, 1.0)


def _width(shape: Shape) -> int:
    return shape.bytes // shape.elements if shape.elements else 0
