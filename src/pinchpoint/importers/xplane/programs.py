"""What compiled programs say of their operations: the line they come from, FLOPs and bytes.

``/host:metadata`` keeps each program (``HloProto``) that ran. Field numbers and the numbers of
types are those of the published ``hlo.proto`` and ``xla_data.proto``. Sizes count what must move:
of a table that slices are taken from, or that one is written into, the slices.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

from pinchpoint.importers.files.wire import BYTES, VARINT, Field, MalformedMessage, fields
from pinchpoint.importers.xplane.graphs import name_kernels_of_graphs
from pinchpoint.importers.xplane.operations import LARGEST, said_of
from pinchpoint.regex import regex

_PROGRAM_MODULE = 1  # field of HloProto
# of HloModuleProto
_MODULE_NAME, _MODULE_COMPUTATION, _MODULE_ENTRY, _MODULE_SCHEDULE, _MODULE_FRAMES = 1, 3, 6, 7, 17
_COMPUTATION_INSTRUCTION, _COMPUTATION_ID, _COMPUTATION_ROOT = 2, 5, 6  # of HloComputationProto
_SEQUENCES, _KEY, _VALUE, _IDS = 1, 1, 2, 1  # of HloScheduleProto: a map of lists
# of HloInstructionProto
_NAME, _OPCODE, _SHAPE, _METADATA, _CONVOLUTION, _TARGET, _DOT = 1, 2, 3, 7, 16, 28, 30
_ID, _OPERANDS, _CALLED, _CONFIG = 35, 36, 38, 43  # the same
_ELEMENT_TYPE, _DIMENSIONS, _TUPLE = 2, 3, 4  # of ShapeProto
_SCOPE, _FILE, _LINE, _FRAME = 2, 3, 4, 15  # of OpMetadata: op_name, source_file, source_line
_FILES, _LOCATIONS, _FRAMES = 1, 3, 4  # of StackFrameIndexProto, whose entries count from 1
_AT_FILE, _AT_LINE = 1, 3  # of its FileLocation
_AT_LOCATION, _CALLED_FROM = 1, 2  # of its StackFrame
_LHS_CONTRACTING = 1  # of DotDimensionNumbers
_KERNEL_OUTPUT_FEATURE = 4  # of ConvolutionDimensionNumbers

# Bits of PrimitiveType; tuples, tokens and opaque values have none.
_BITS = dict.fromkeys((1, 2, 6, 19, 20, 23, 24, 25, 28, 29, 33), 8)
_BITS |= {3: 16, 7: 16, 10: 16, 16: 16, 4: 32, 8: 32, 11: 32, 5: 64, 9: 64, 12: 64, 15: 64}
_BITS |= {18: 128, 21: 4, 22: 4, 26: 2, 27: 2, 30: 1, 31: 1, 32: 4}
# What starts nothing on the device itself.
_NO_WORK = frozenset(
    ("parameter", "constant", "bitcast", "tuple", "get-tuple-element", "while", "call",
     "conditional", "after-all", "partition-id", "replica-id", "opt-barrier", "domain")
)  # fmt: skip
_TAKES_SLICES = ("dynamic-slice", "gather", "slice")


class _Shape:
    """An array, or the arrays of a tuple."""

    def __init__(self, message: memoryview) -> None:
        found = list(fields(message))
        self.type = next((f.integer for f in found if f.number == _ELEMENT_TYPE), 0)
        self.dimensions = tuple(_integers(found, _DIMENSIONS))
        self.parts = [_Shape(f.bytes) for f in found if f.number == _TUPLE]

    @property
    def elements(self) -> int:
        return prod(self.dimensions)

    @property
    def bytes(self) -> int:
        own = self.elements * _BITS.get(self.type, 0) // 8
        return own + sum(part.bytes for part in self.parts)


class _Instruction:
    """One instruction, read only as far as it is asked for."""

    def __init__(self, message: memoryview) -> None:
        self._message = message
        found = [f for f in fields(message) if f.number in (_NAME, _OPCODE, _ID)]
        self.name, self.opcode = _text(found, _NAME), _text(found, _OPCODE)
        self.id = next(iter(_integers(found, _ID)), -1)

    @property
    def _found(self) -> Iterator[Field]:
        return fields(self._message)

    @cached_property
    def shape(self) -> _Shape:
        return _Shape(next(_messages(self._found, _SHAPE), memoryview(b"")))

    @property
    def result(self) -> _Shape:
        """Of a library's call without the workspace that it takes along."""
        return self.shape.parts[0] if self.is_library and self.shape.parts else self.shape

    @cached_property
    def operands(self) -> tuple[int, ...]:
        return tuple(_integers(self._found, _OPERANDS))

    @property
    def called(self) -> tuple[int, ...]:
        return tuple(_integers(self._found, _CALLED))

    @cached_property
    def target(self) -> str:
        return _text(self._found, _TARGET)

    @property
    def is_library(self) -> bool:
        return self.target.startswith(("__cublas$", "__cudnn$"))

    @cached_property
    def _metadata(self) -> list[Field]:
        return list(fields(next(_messages(self._found, _METADATA), memoryview(b""))))

    @property
    def place(self) -> str | None:
        line, file = next(iter(_integers(self._metadata, _LINE)), 0), _text(self._metadata, _FILE)
        return f"{file}:{line}" if file and line else None

    @property
    def frame(self) -> int:
        """Its innermost frame in the program's index of frames; 0: none is told."""
        return next(iter(_integers(self._metadata, _FRAME)), 0)

    @property
    def contracted(self) -> tuple[int, ...]:
        """The dimensions of its first operand that a product sums over."""
        for message in _messages(self._found, _DOT):
            return tuple(_integers(list(fields(message)), _LHS_CONTRACTING))
        config = next(_messages(self._found, _CONFIG), memoryview(b""))
        with suppress(ValueError, TypeError, KeyError, OverflowError, RecursionError):
            said = json.loads(bytes(config))["gemm_backend_config"]["dot_dimension_numbers"]
            return tuple(int(at) for at in said["lhs_contracting_dimensions"])
        return ()

    @property
    def kernel_features(self) -> int | None:
        """Which dimension of a convolution's kernel counts its results; None: no convolution."""
        for message in _messages(self._found, _CONVOLUTION):
            return next(iter(_integers(list(fields(message)), _KERNEL_OUTPUT_FEATURE)), 0)
        return None


class _Program:
    """One compiled module."""

    def __init__(self, found: Sequence[Field]) -> None:
        self.entry = next(iter(_integers(found, _MODULE_ENTRY)), -1)
        self._schedules = list(_messages(found, _MODULE_SCHEDULE))
        self._frames = next(_messages(found, _MODULE_FRAMES), memoryview(b""))
        self.by_id: dict[int, _Instruction] = {}
        self.computations: dict[int, list[_Instruction]] = {}
        self.roots: dict[int, int] = {}
        for message in _messages(found, _MODULE_COMPUTATION):
            parts = list(fields(message))
            inside = [_Instruction(m) for m in _messages(parts, _COMPUTATION_INSTRUCTION)]
            number = next(iter(_integers(parts, _COMPUTATION_ID)), -1)
            self.computations[number] = inside
            self.roots[number] = next(iter(_integers(parts, _COMPUTATION_ROOT)), -1)
            self.by_id |= {one.id: one for one in inside}

    def place_of(self, one: _Instruction) -> str | None:
        """File and line that it comes from; of one that XLA made, those of what it is a part of."""
        told = one.place or self._places.get(one.frame)
        caller = self._caller.get(one.id) if told is None else None
        return told if caller is None else self.place_of(caller)

    @cached_property
    def _places(self) -> dict[int, str]:
        """By number of a frame: newer programs have frames in one index.

        The line of the program itself, where a library's function that it calls is further in.
        """
        index = list(fields(self._frames))
        files = [f.text for f in index if (f.number, f.kind) == (_FILES, BYTES)]
        locations = [list(fields(m)) for m in _messages(index, _LOCATIONS)]
        frames = [list(fields(m)) for m in _messages(index, _FRAMES)]
        found, callers = {}, {}
        for number, frame in enumerate(frames, 1):
            callers[number] = next(iter(_integers(frame, _CALLED_FROM)), 0)
            at = next(iter(_integers(frame, _AT_LOCATION)), 0)
            location = locations[at - 1] if 0 < at <= len(locations) else []
            file, line = (next(iter(_integers(location, n)), 0) for n in (_AT_FILE, _AT_LINE))
            if 0 < file <= len(files) and line:
                found[number] = f"{files[file - 1]}:{line}"
        return {number: _of_the_program(number, found, callers) for number in found}

    @cached_property
    def _caller(self) -> dict[int, _Instruction]:
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
    def by_name(self) -> dict[str, _Instruction]:
        return {one.name: one for inside in self.computations.values() for one in inside}

    @cached_property
    def launches(self) -> list[_Instruction]:
        """What the program starts on the device in one run, in this order; empty if it branches."""
        order: list[_Instruction] = []
        for message in self._schedules:
            for entry in _messages(list(fields(message)), _SEQUENCES):
                pair = list(fields(entry))
                if next(iter(_integers(pair, _KEY)), 0) == self.entry:
                    listed = list(fields(next(_messages(pair, _VALUE), memoryview(b""))))
                    order = [self.by_id[i] for i in _integers(listed, _IDS) if i in self.by_id]
        branches = any(one.opcode in ("while", "call", "conditional") for one in order)
        return [] if branches else [one for one in order if one.opcode not in _NO_WORK]

    # --------------------------------------------------------------------------------------------
    # FLOPs: products and convolutions; what else is computed hides behind what is moved.

    def flops(self, one: _Instruction) -> int:
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

    def _convolution(self, one: _Instruction) -> int:
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

    def bytes(self, one: _Instruction) -> int:
        """What an instruction reads and writes, each once."""
        if one.opcode == "fusion" and one.called:
            return self._of_fusion(one, one.called[0])
        if one.opcode in _TAKES_SLICES:
            return 2 * one.shape.bytes
        if one.opcode == "dynamic-update-slice":
            return 2 * self._size(one, 1)
        if (
            one.opcode == "scatter"
        ):  # updates are read, and the rows that they meet read and written
            return self._size(one, 1) + 3 * self._size(one, 2)
        return one.result.bytes + sum(self._size(one, at) for at in range(len(one.operands)))

    def _of_fusion(self, one: _Instruction, number: int) -> int:
        inside = self.computations.get(number, [])
        users: dict[int, list[_Instruction]] = {}
        for user in inside:
            for operand in set(user.operands):
                users.setdefault(operand, []).append(user)
        read = sum(self._read(i, users) for i in inside if i.opcode == "parameter")
        return read + sum(self._written(part) for part in self._results(number, one))

    def _read(self, parameter: _Instruction, users: Mapping[int, list[_Instruction]]) -> int:
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
        self, one: _Instruction, users: Mapping[int, list[_Instruction]]
    ) -> list[_Instruction]:
        found: list[_Instruction] = []
        for user in users.get(one.id, []):
            same = user.opcode == "bitcast" and user.operands[0] == one.id
            found += self._beyond_bitcasts(user, users) if same else [user]
        return found

    def _below_bitcasts(self, one: _Instruction) -> _Instruction:
        below = self._operand(one, 0) if one.opcode == "bitcast" else None
        return one if below is None else self._below_bitcasts(below)

    def _results(self, number: int, one: _Instruction) -> list[_Instruction]:
        root = self.by_id.get(self.roots.get(number, -1), one)
        if root.opcode != "tuple":
            return [root]
        return [self.by_id[i] for i in root.operands if i in self.by_id]

    def _written(self, result: _Instruction) -> int:
        below = self._below_bitcasts(result)
        if below.opcode == "dynamic-update-slice":
            return self._size(below, 1)
        return result.shape.bytes

    def _operand(self, one: _Instruction, at: int) -> _Instruction | None:
        return self.by_id.get(one.operands[at]) if at < len(one.operands) else None

    def _size(self, one: _Instruction, at: int) -> int:
        operand = self._operand(one, at)
        return 0 if operand is None else operand.result.bytes


def _of_the_program(frame: int, places: Mapping[int, str], callers: Mapping[int, int]) -> str:
    """The innermost place around a frame that no package is installed at; else its own."""
    seen, at = {0}, frame
    while at not in seen:
        seen.add(at)
        if at in places and not _INSTALLED.search(places[at]):
            return places[at]
        at = callers.get(at, 0)
    return places[frame]


_INSTALLED = regex(r"(?:site|dist)-packages/")


def with_programs(rows: Sequence[dict[str, Any]], programs: Iterable[memoryview]) -> None:
    """Put to rows of ``compiled_ops`` what their programs tell and the recording does not.

    That is the line, FLOPs and bytes; and the instruction, where a run of a program was recorded
    as one operation (a graph) and its kernels are as many, in the order that the program has. A
    program that is damaged is left out, and of programs with one name what they do not agree in.
    """
    mine: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        mine.setdefault(row["module"] or "", []).append(row)
    found: dict[str, list[_Program]] = {}
    for message in programs:
        with suppress(MalformedMessage):
            for module in _messages(list(fields(message)), _PROGRAM_MODULE):
                parts = list(fields(module))
                if (name := _text(parts, _MODULE_NAME)) in mine:
                    found.setdefault(name, []).append(_Program(parts))
    for name, same in found.items():
        with suppress(MalformedMessage, RecursionError):
            _tell(same, mine[name])


def _tell(programs: Sequence[_Program], rows: list[dict[str, Any]]) -> None:
    if len(programs) == 1:
        order = [(one.name, one.opcode == "fusion") for one in programs[0].launches]
        name_kernels_of_graphs(order, programs[0].by_name, rows)
    known: dict[str, _Facts] = {}
    for run in _runs(rows):
        op, took = run[0]["op"], sum(row["duration_ns"] for row in run)
        if op not in known:
            known[op] = _facts(programs, op)
        for row in run:
            share = row["duration_ns"] / took if took else 1 / len(run)
            _tell_row(row, known[op], share)


def _tell_row(row: dict[str, Any], facts: "_Facts", share: float) -> None:
    if facts.place and facts.place not in (row["source"] or ""):
        row["source"] = said_of(facts.place, row["source"])
    for what, amount in (("flops", facts.flops), ("bytes", facts.bytes)):
        row[what] = row[what] or (round(amount * share) if amount else None)


def _runs(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Kernels after each other that are one run of one instruction: they share its work."""
    run: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: (row["device"] or 0, row["start_ns"])):
        same = run and (row["op"], row["device"]) == (run[0]["op"], run[0]["device"])
        if not same or row.get("kernel") in [None, *(before["kernel"] for before in run)]:
            if run:
                yield run
            run = []
        run.append(row)
    if run:
        yield run


class _Facts(NamedTuple):
    place: str | None = None
    flops: int | None = None
    bytes: int | None = None


def _facts(programs: Sequence[_Program], op: str) -> _Facts:
    said = []
    for program in programs:
        one = program.by_name.get(op)
        if one is not None and one.opcode in _NO_WORK:
            said.append(_Facts(program.place_of(one)))
        elif one is not None:
            said.append(
                _Facts(program.place_of(one), _sane(program.flops(one)), _sane(program.bytes(one)))
            )
    if not said:
        return _Facts()
    return said[0] if len(set(said)) == 1 else _Facts(said[0].place)


def _sane(amount: int) -> int | None:
    return amount if 0 < amount < LARGEST else None


def _messages(found: Iterable[Field], number: int) -> Iterator[memoryview]:
    return (f.bytes for f in found if (f.number, f.kind) == (number, BYTES))


def _text(found: Iterable[Field], number: int) -> str:
    return next((f.text for f in found if (f.number, f.kind) == (number, BYTES)), "")


def _integers(found: Iterable[Field], number: int) -> Iterator[int]:
    """A number, or several: packed into bytes or one a field."""
    for one in found:
        if one.number == number and one.kind == VARINT:
            yield one.integer
        elif one.number == number and one.kind == BYTES:
            yield from _unpacked(one.bytes)


def _unpacked(packed: memoryview) -> Iterator[int]:
    value = shift = 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0
