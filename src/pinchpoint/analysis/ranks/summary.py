"""What is kept of one rank's recording: at most 200 kB, enough for every question about the job.

Columns are little-endian arrays as bytes (base64 in JSON), int64 for times and int32 for the rest,
because ten thousand summaries are read several times. Times are Unix nanoseconds on the rank's own
clock.
"""

from typing import Annotated, Any

import msgspec
import numpy as np

from pinchpoint.trace.arrays import Ints, Mask

SCHEMA = "pinchpoint.rank/1"
MOST_BYTES = 200_000  # of a summary as JSON
MOST_CALLS = 2_200  # collectives kept: 49 bytes each, and a third more in base64
LONGEST_TEXT = 160  # characters kept of a name or place
MOST_CELLS = 3_000  # step × part

# What a column of int64 holds; more in a part file is damage, and overflows where it is divided.
Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_WIDE_BYTES, _SMALL_BYTES = 8, 4  # of a number in a column
UNKNOWN = -1  # inside columns only: a sequence number that was not recorded


def pack(values: Any) -> bytes:
    """A column from numbers."""
    return np.ascontiguousarray(values, "<i8").tobytes()


def unpack(column: bytes) -> Ints:
    """The numbers of a column."""
    return np.frombuffer(column, "<i8").astype(np.int64, copy=False)


def pack_small(values: Any) -> bytes:
    """A column from numbers of 32 bits."""
    return np.ascontiguousarray(values, "<i4").tobytes()


def unpack_small(column: bytes) -> Ints:
    """The numbers of a column of 32 bits."""
    return np.frombuffer(column, "<i4").astype(np.int64)


def unpack_bits(column: bytes, count: int) -> Mask:
    """Whether each of ``count`` rows has the bit set; none has in an empty column."""
    return np.frombuffer(column, "u1") > 0 if column else np.zeros(count, np.bool_)


class ProcessGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A process group as this rank knows it; null where the recording does not say."""

    name: str | None = None
    description: str | None = None
    ranks: str | None = None  # as written
    size: Number | None = None


class CallKind(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of one rank that are alike."""

    group: Number  # position in ``groups``
    kind: str  # allreduce, …; prefixed with the backend where the host carries it out: gloo:…
    bytes: Number | None = None
    dtype: str | None = None
    kernel: str = ""  # first part of the kernel's name


class Calls(msgspec.Struct, frozen=True, kw_only=True):
    """The rank's collectives in order of their start; columns of one length.

    Of more than ``MOST_CALLS`` every ``stride``-th of each group and step is kept.
    """

    start_ns: bytes = b""
    duration_ns: bytes = b""
    ready_ns: bytes = b""  # when it could have started, but for the one before it on its stream
    exposed_ns: bytes = b""  # of the duration: nothing was computed meanwhile
    covered: bytes = b""  # of one byte: 1 where something was computed when it ended; none: unknown
    kind: bytes = b""  # small: position in ``call_kinds``
    step: bytes = b""  # small: position in the steps
    place: bytes = b""  # small: position among those of its group and step
    sequence: bytes = b""  # small: number in its group, as recorded; UNKNOWN where not
    stride: Number = 1
    in_all: Number = 0  # before thinning


class StepColumns(msgspec.Struct, frozen=True, kw_only=True):
    """The rank's steps; columns of one length, but ``parts_ns``: steps × parts."""

    how: str  # marker, inferred, none
    number: bytes = b""
    start_ns: bytes = b""
    end_ns: bytes = b""
    complete: bytes = b""  # 0 or 1
    host_ns: bytes = b""  # what the host needed to issue the step, waits for the device left out
    recording_ns: bytes = b""  # estimate of what recording added to that
    kernels: bytes = b""  # launched, collectives left out
    parts_ns: bytes = b""


class RankPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the step's breakdown, as in ``analysis.time.accounting``."""

    id: str
    label: str
    group: str


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Idle time of the device with one reason, or the time of one kernel, and its place."""

    part: str  # id of the part it belongs to; of a kernel, of the device's work: DEVICE
    ns_per_step: Number
    at_ns: Number  # of its longest piece, on the rank's clock since its recording began
    name: str | None = None  # of the call, operator or frame there
    file: str | None = None
    line: Number | None = None
    function: str | None = None
    operator: str | None = None


DEVICE = "device"


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel with much time in the complete steps."""

    name: str
    count: Number
    total_ns: Number
    blocks: float | None = None  # mean of a run: how much work it was given
    place: Cause | None = None  # where its longest run was launched


class FirstInput(msgspec.Struct, frozen=True, kw_only=True):
    """The largest tensor that an operator at the beginning of the steps takes, and its place."""

    operator: str
    call: Number  # of this operator in the step
    dims: tuple[float, ...]  # mean over the steps
    elements: bytes = b""  # in each step
    file: str | None = None
    line: Number | None = None
    function: str | None = None


class RankPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A function of the program and the time of a mean step that the rank spends there by itself,
    on a core or asleep of its own will, by looks at it; with 95 % confidence between two bounds."""

    file: str
    function: str
    line: Number | None = None
    doing: str = ""
    least_ns: Number
    ns: Number
    most_ns: Number
    none_ns: Number  # what so many looks may have missed at a place where they saw nothing
    # With the time in which it was ready there and had no core, and the least of that
    there_ns: Number = 0
    least_there_ns: Number = 0


class RankSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One rank. Null: the recording does not say."""

    schema: str = SCHEMA
    rank: Number | None
    world_size: Number | None = None
    device: str | None = None  # null: no device took part
    backend: str | None = None  # nccl, gloo, …
    format: str
    events: Number
    truncated: bool = False
    contended: bool = False  # programs of others took the cores that its host work needed
    refused: str | None = None  # why nothing can be concluded about its time
    origin_ns: Number | None = None
    corrected_step_ns: Number | None = None  # a step without the profiler
    typical_step_ns: Number | None = None
    # The mean of the steps that the rank timed itself, beside its recordings
    timed_step_ns: Number | None = None
    steps: StepColumns
    parts: tuple[RankPart, ...] = ()
    groups: tuple[ProcessGroup, ...] = ()
    call_kinds: tuple[CallKind, ...] = ()
    calls: Calls = Calls()
    point_to_point: Number = (
        0  # sends and receives whose other rank is not known, which are left out
    )
    causes: tuple[Cause, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    inputs: tuple[FirstInput, ...] = ()  # in the order of the step; none without shapes
    places: tuple[RankPlace, ...] = ()  # of ranks that waited for a core
    # Of the run as looked at: its main thread was on a core, or asleep of its own will; and it was
    # ready to run, on none.
    own_ratio: float | None = None
    no_core_ratio: float | None = None

    def fault(self) -> str | None:
        """Why its columns cannot belong together, which only damage or an edit makes; or None."""
        for what, columns in (("steps", _step_columns(self.steps)), ("calls", _calls(self.calls))):
            if len({len(column) for column in columns}) > 1:
                return f"columns of its {what} differ in length"
        count = len(self.steps.number) // _WIDE_BYTES
        if len(self.steps.parts_ns) != count * len(self.parts) * _WIDE_BYTES:
            return "its steps and their parts do not fit"
        if self.calls.stride < 1:
            return "its stride is not positive"
        if any(kernel.count < 1 for kernel in self.kernels):
            return "a kernel that never ran"
        if not _within(self.calls.kind, 0, len(self.call_kinds)):
            return "a call of a kind that it does not describe"
        if not all(0 <= kind.group < len(self.groups) for kind in self.call_kinds):
            return "a collective of a group that it does not describe"
        return None if _within(self.calls.step, -1, count) else "a call of a step that it lacks"

    def parts_by_step(self) -> Ints:
        """Shape (steps, parts)."""
        return unpack(self.steps.parts_ns).reshape(-1, max(len(self.parts), 1))


def _step_columns(steps: StepColumns) -> tuple[bytes, ...]:
    whole = (steps.number, steps.start_ns, steps.end_ns, steps.complete, steps.host_ns)
    return (*whole, steps.recording_ns, steps.kernels)


def _calls(calls: Calls) -> tuple[bytes, ...]:
    """The columns, small ones made as long as wide ones."""
    wide = (calls.start_ns, calls.duration_ns, calls.ready_ns, calls.exposed_ns)
    small = (calls.kind, calls.step, calls.place, calls.sequence)
    bits = (calls.covered * _WIDE_BYTES,) if calls.covered else ()
    return (*wide, *(column * (_WIDE_BYTES // _SMALL_BYTES) for column in small), *bits)


def _within(column: bytes, low: int, high: int) -> bool:
    values = unpack_small(column)
    return bool(((values >= low) & (values < high)).all())


def stride_for(count: int) -> int:
    """Which calls are kept: every one, every second, fourth, …; sets of ranks stay nested."""
    stride = 1
    while count > MOST_CALLS * stride:
        stride *= 2
    return stride


def steps_kept(steps: int, parts: int) -> int:
    """How many of the last steps are kept."""
    return min(steps, max(MOST_CELLS // max(parts, 1), 1))


def clipped(text: str | None, length: int) -> str | None:
    """Text from a recording, cut to a length that a summary can afford."""
    return None if text is None else text[:length]
