"""Compiled programs (``HloProto``), read as far as they are asked: instructions, places, work.

Field numbers and the numbers of types are those of the published ``hlo.proto`` and
``xla_data.proto``. Sizes count what must move: of a table that slices are taken from, or that one
is written into, the slices.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from math import prod

from pinchpoint.importers.xplane.fields import (
    Told,
    integer,
    integers,
    messages,
    text,
    told_by,
)
from pinchpoint.importers.xplane.frames import places_of_frames
from pinchpoint.importers.xplane.shapes import Shape

PROGRAM_MODULE = 1  # field of HloProto
# of HloModuleProto
MODULE_NAME, _MODULE_COMPUTATION, _MODULE_ENTRY, _MODULE_SCHEDULE, _MODULE_FRAMES = 1, 3, 6, 7, 17
_MODULE_ALIASES, _ALIAS, _ALIASED_PARAMETER = 8, 1, 2  # of HloInputOutputAliasProto and its entries
_COMPUTATION_INSTRUCTION, _COMPUTATION_ID, _COMPUTATION_ROOT = 2, 5, 6  # of HloComputationProto
_SEQUENCES, _KEY, _VALUE, _IDS = 1, 1, 2, 1  # of HloScheduleProto: a map of lists
# of HloInstructionProto
_NAME, _OPCODE, _SHAPE, _METADATA, _CONVOLUTION, _TARGET, _DOT = 1, 2, 3, 7, 16, 28, 30
_LITERAL, _PARAMETER, _TUPLE_INDEX, _DIRECTION = 8, 9, 13, 63  # the same
_SLICED, _FROM, _UNTIL = 17, 1, 2  # the same: of each dimension where a slice begins and ends
_FFT_LENGTH = 32  # the same
_FEATURE_GROUPS = 50  # the same
_ID, _OPERANDS, _CALLED, _CONFIG, _PRECISION = 35, 36, 38, 43, 51  # the same
_SCOPE, _FILE, _LINE, _EQUAL, _FRAME = 2, 3, 4, 12, 15  # of OpMetadata; deduplicated_name
_OF_OPERANDS = 1  # of PrecisionConfig: 0 is the default, beyond it are more passes
_LHS_CONTRACTING = 1  # of DotDimensionNumbers
_KERNEL_OUTPUT_FEATURE = 4  # of ConvolutionDimensionNumbers

# What starts nothing on the device itself.
NO_WORK = frozenset(
    ("parameter", "constant", "bitcast", "tuple", "get-tuple-element", "while", "call",
     "conditional", "after-all", "partition-id", "replica-id", "opt-barrier", "domain")
)  # fmt: skip
_DEEPEST = 100  # calls inside calls that are looked through
_MOST_ITERATIONS = 1 << 62  # fits into a column of 64 bits
_TAKES_SLICES = ("dynamic-slice", "gather", "slice")


class Instruction:
    """One instruction, understood only as far as it is asked for."""

    def __init__(self, message: bytes) -> None:
        self._told = told_by(message)
        self.name, self.opcode = text(self._told, _NAME), text(self._told, _OPCODE)
        self.id = integer(self._told, _ID, -1)
        self.operands = tuple(integers(self._told, _OPERANDS))

    @cached_property
    def shape(self) -> Shape:
        """Of its result."""
        return Shape(next(messages(self._told, _SHAPE), b""))

    @property
    def result(self) -> Shape:
        """Of a library's call without the workspace that it takes along."""
        return self.shape.parts[0] if self.is_library and self.shape.parts else self.shape

    @property
    def parameter(self) -> int:
        """Which parameter of its computation it is."""
        return integer(self._told, _PARAMETER)

    @property
    def fft_lengths(self) -> tuple[int, ...]:
        """Points of a Fourier transform along each of its dimensions; of others none."""
        return tuple(integers(self._told, _FFT_LENGTH)) if self.opcode == "fft" else ()

    @property
    def sliced(self) -> tuple[tuple[int, int], ...]:
        """Of each dimension where a slice begins and ends; of others none."""
        parts = map(told_by, messages(self._told, _SLICED))
        return tuple((integer(part, _FROM), integer(part, _UNTIL)) for part in parts)

    @property
    def tuple_index(self) -> int:
        """Which part of a tuple it takes."""
        return integer(self._told, _TUPLE_INDEX)

    @property
    def spelt_out(self) -> tuple[bytes, str]:
        """What makes two scalar instructions of one kind differ: a constant's value, as it is
        stored, and which way a comparison goes."""
        return next(messages(self._told, _LITERAL), b""), text(self._told, _DIRECTION)

    @property
    def called(self) -> tuple[int, ...]:
        """Computations: a fusion's, a loop's body and its condition."""
        return tuple(integers(self._told, _CALLED))

    @property
    def target(self) -> str:
        """What a custom call calls."""
        return text(self._told, _TARGET)

    @property
    def is_library(self) -> bool:
        """A call of cuBLAS or cuDNN."""
        return self.opcode == "custom-call" and self.target.startswith(("__cublas$", "__cudnn$"))

    @property
    def is_product(self) -> bool:
        """A matrix product or convolution by itself."""
        return self.opcode in ("dot", "convolution") or self.is_library

    @property
    def wants_digits(self) -> bool:
        """Whether the program asks for more of a product than its default precision."""
        for message in messages(self._told, _PRECISION):
            return any(integers(told_by(message), _OF_OPERANDS))
        return self.is_library and b'"HIGH' in self.config  # HIGH, HIGHEST: of operand_precision

    @property
    def iterations(self) -> int | None:
        """How often a loop runs, where XLA knows it."""
        with suppress(ValueError, TypeError, KeyError, OverflowError, RecursionError):
            count = int(json.loads(self.config)["known_trip_count"]["n"])
            return count if 0 < count < _MOST_ITERATIONS else None
        return None

    @property
    def config(self) -> bytes:
        """What a library is told, or a compiler's pass wrote down."""
        return next(messages(self._told, _CONFIG), b"")

    @cached_property
    def _metadata(self) -> Told:
        return told_by(next(messages(self._told, _METADATA), b""))

    @property
    def scope(self) -> str:
        """The functions and operations of the framework that it comes from."""
        return text(self._metadata, _SCOPE)

    @property
    def kernel(self) -> str | None:
        """What its kernel is named after: itself or an equal instruction; None: a library's."""
        return (text(self._metadata, _EQUAL) or self.name) if self.opcode == "fusion" else None

    @property
    def place(self) -> str | None:
        """File and line, as older programs write them."""
        line, file = integer(self._metadata, _LINE), text(self._metadata, _FILE)
        return f"{file}:{line}" if file and line else None

    @property
    def frame(self) -> int:
        """Its innermost frame in the program's index of frames; 0: none is told."""
        return integer(self._metadata, _FRAME)

    @property
    def contracted(self) -> tuple[int, ...]:
        """The dimensions of its first operand that a product sums over."""
        for message in messages(self._told, _DOT):
            return tuple(integers(told_by(message), _LHS_CONTRACTING))
        with suppress(ValueError, TypeError, KeyError, OverflowError, RecursionError):
            said = json.loads(self.config)["gemm_backend_config"]["dot_dimension_numbers"]
            return tuple(int(at) for at in said["lhs_contracting_dimensions"])
        return ()

    @property
    def feature_groups(self) -> int:
        """Of how many groups of channels a convolution takes each by itself."""
        return integer(self._told, _FEATURE_GROUPS, 1) or 1

    @property
    def kernel_features(self) -> int | None:
        """Which dimension of a convolution's kernel counts its results; None: no convolution."""
        for message in messages(self._told, _CONVOLUTION):
            return integer(told_by(message), _KERNEL_OUTPUT_FEATURE)
        return None


class Program:
    """One compiled module."""

    def __init__(self, module: Told) -> None:
        self.entry = integer(module, _MODULE_ENTRY, -1)
        self._schedules = list(messages(module, _MODULE_SCHEDULE))
        self._frames = next(messages(module, _MODULE_FRAMES), b"")
        aliases = told_by(next(messages(module, _MODULE_ALIASES), b""))
        self.donated = {  # numbers of parameters that a result may take the place of
            integer(told_by(entry), _ALIASED_PARAMETER) for entry in messages(aliases, _ALIAS)
        }
        self.by_id: dict[int, Instruction] = {}
        self.computations: dict[int, list[Instruction]] = {}
        self.roots: dict[int, int] = {}
        for message in messages(module, _MODULE_COMPUTATION):
            told = told_by(message)
            inside = [Instruction(m) for m in messages(told, _COMPUTATION_INSTRUCTION)]
            number = integer(told, _COMPUTATION_ID, -1)
            self.computations[number] = inside
            self.roots[number] = integer(told, _COMPUTATION_ROOT, -1)
            self.by_id |= {one.id: one for one in inside}

    def place_of(self, one: Instruction) -> str | None:
        """File and line that it comes from; of one that XLA made, those of what it is a part of,
        else of what takes its result."""
        told = self._own_place(one)
        if told is None and (caller := self._caller.get(one.id)) is not None:
            return self.place_of(caller)
        return told or next(filter(None, map(self._own_place, self.users.get(one.id, ()))), None)

    def _own_place(self, one: Instruction) -> str | None:
        return one.place or self._places.get(one.frame)

    @cached_property
    def users(self) -> dict[int, list[Instruction]]:
        """By instruction, those that take its result."""
        found: dict[int, list[Instruction]] = {}
        for user in self.by_id.values():
            for operand in set(user.operands):
                found.setdefault(operand, []).append(user)
        return found

    def loop_around(self, one: Instruction) -> Instruction | None:
        """The innermost loop that it is in."""
        around = self._caller.get(one.id)
        for _ in range(_DEEPEST):
            if around is None or around.opcode == "while":
                return around
            around = self._caller.get(around.id)
        return None

    def copied_argument(self, one: Instruction) -> tuple[str, bool] | None:
        """The argument of the whole program that a copy was made of, as the program calls it, and
        whether it was given to be changed."""
        source = self._operand(one, 0) if one.opcode == "copy" else None
        for _ in range(_DEEPEST):  # of itself, in a file that is damaged
            if source is None or source.opcode != "bitcast":
                break
            source = self._operand(source, 0)
        if source is None or source.opcode != "parameter" or source.id in self._caller:
            return None
        return source.scope or source.name, source.parameter in self.donated

    @cached_property
    def _places(self) -> dict[int, str]:
        """By number of a frame: newer programs have frames in one index."""
        return places_of_frames(self._frames)

    @cached_property
    def _caller(self) -> dict[int, Instruction]:
        """By instruction, the one that calls the computation that it is in."""
        by_computation = {c: one for one in self.by_id.values() for c in one.called}
        return {
            one.id: by_computation[number]
            for number, inside in self.computations.items()
            if number in by_computation
            for one in inside
            if one is not by_computation[number]
        }

    @cached_property
    def by_name(self) -> dict[str, Instruction]:
        """Names are unique in a program."""
        return {one.name: one for inside in self.computations.values() for one in inside}

    @cached_property
    def launches(self) -> list[Instruction]:
        """What the program starts on the device in one run, in this order; empty if it branches."""
        order: list[Instruction] = []
        for message in self._schedules:
            for entry in messages(told_by(message), _SEQUENCES):
                pair = told_by(entry)
                if integer(pair, _KEY) == self.entry:
                    listed = told_by(next(messages(pair, _VALUE), b""))
                    order = [self.by_id[i] for i in integers(listed, _IDS) if i in self.by_id]
        branches = any(one.opcode in ("while", "call", "conditional") for one in order)
        return [] if branches else [one for one in order if one.opcode not in NO_WORK]

    # --------------------------------------------------------------------------------------------
    # FLOPs: products and convolutions; what else is computed hides behind what is moved.

    def flops(self, one: Instruction) -> int:
        """Multiplications and additions of products and convolutions in an instruction."""
        if one.opcode == "fusion":
            inside = (i for number in one.called for i in self.computations.get(number, ()))
            return sum(self.flops(i) for i in inside if i.opcode != "fusion")
        if one.opcode == "convolution" or one.target.startswith("__cudnn$conv"):
            return self._convolution(one)
        first = self._operand(one, 0)
        if first is None or not (one.opcode == "dot" or one.target.startswith("__cublas$")):
            return 0
        sizes = first.result.dimensions
        summed = [sizes[at] for at in one.contracted if 0 <= at < len(sizes)]
        return 2 * one.result.elements * prod(summed) if summed else 0

    def _convolution(self, one: Instruction) -> int:
        """Each result takes the kernel's elements of its feature; gradients take as much."""
        first, second, at = self._operand(one, 0), self._operand(one, 1), one.kernel_features
        if first is None or second is None or at is None:
            return 0
        kernel, results = second.result.dimensions, one.result.elements
        if one.target.endswith("BackwardFilter"):
            kernel, results = one.result.dimensions, second.result.elements
        elif one.target.endswith("BackwardInput"):
            results = first.result.elements
        return 2 * results * prod(kernel) // max(kernel[at], 1) if at < len(kernel) else 0

    # --------------------------------------------------------------------------------------------
    # Bytes.

    def bytes(self, one: Instruction) -> int:
        """What an instruction reads and writes, each once."""
        if one.opcode == "fusion" and one.called:
            return self._of_fusion(one, one.called[0])
        if one.opcode in _TAKES_SLICES:
            return 2 * one.shape.bytes
        if one.opcode == "dynamic-update-slice":
            return 2 * self._size(one, 1)
        if one.opcode == "scatter":  # reads updates, and reads and writes the rows that they meet
            return self._size(one, 1) + 3 * self._size(one, 2)
        return one.result.bytes + sum(self._size(one, at) for at in range(len(one.operands)))

    def _of_fusion(self, one: Instruction, number: int) -> int:
        inside = self.computations.get(number, [])
        read = sum(self._read(i, self.users) for i in inside if i.opcode == "parameter")
        return read + sum(self._written(part) for part in self._results(number, one))

    def _read(self, parameter: Instruction, users: Mapping[int, list[Instruction]]) -> int:
        """Of a parameter that only slices are taken from, or written into, the slices."""
        direct = self._beyond_bitcasts(parameter, users)
        if direct and all(user.opcode in _TAKES_SLICES for user in direct):
            return min(sum(user.shape.bytes for user in direct), parameter.shape.bytes)
        if direct and all(user.opcode == "dynamic-update-slice" for user in direct):
            firsts = [self._operand(user, 0) for user in direct]
            if all(f is not None and self._below_bitcasts(f) is parameter for f in firsts):
                return 0
        return parameter.shape.bytes

    def _beyond_bitcasts(
        self, one: Instruction, users: Mapping[int, list[Instruction]]
    ) -> list[Instruction]:
        found: list[Instruction] = []
        for user in users.get(one.id, []):
            same = user.opcode == "bitcast" and user.operands[0] == one.id
            found += self._beyond_bitcasts(user, users) if same else [user]
        return found

    def _below_bitcasts(self, one: Instruction) -> Instruction:
        below = self._operand(one, 0) if one.opcode == "bitcast" else None
        return one if below is None else self._below_bitcasts(below)

    def _results(self, number: int, one: Instruction) -> list[Instruction]:
        root = self.by_id.get(self.roots.get(number, -1), one)
        if root.opcode != "tuple":
            return [root]
        return [self.by_id[i] for i in root.operands if i in self.by_id]

    def _written(self, result: Instruction) -> int:
        below = self._below_bitcasts(result)
        if below.opcode == "dynamic-update-slice":
            return self._size(below, 1)
        return result.shape.bytes

    def operands(self, one: Instruction) -> list[Instruction]:
        """What an instruction takes, as far as the program has it."""
        return [self.by_id[i] for i in one.operands if i in self.by_id]

    def _operand(self, one: Instruction, at: int) -> Instruction | None:
        return self.by_id.get(one.operands[at]) if at < len(one.operands) else None

    def _size(self, one: Instruction, at: int) -> int:
        operand = self._operand(one, at)
        return 0 if operand is None else operand.result.bytes
