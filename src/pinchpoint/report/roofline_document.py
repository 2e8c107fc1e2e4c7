"""The roofline as one document: roofs, points, and how much of the peak a step uses."""

import msgspec

SCHEMA = "pinchpoint.roofline/1"


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the parts."""


class RoofInfo(_Part, frozen=True, kw_only=True):
    """One ceiling; ``dtype`` is null for memory."""

    dtype: str | None  # bf16, fp32, …; null: memory
    per_s: float  # the ceiling
    unit: str  # FLOP/s or bytes/s
    source: str  # data sheet, or when it was measured
    measured: bool  # on the machine of the store
    balance: float | None = None  # FLOP/byte where it meets memory


class LevelInfo(_Part, frozen=True, kw_only=True):
    """A point at one level of the memory."""

    name: str  # device memory, L2
    bytes: float  # moved there
    intensity: float | None  # FLOP per byte of this level
    peak_bytes_per_s: float | None  # of this level


class PointInfo(_Part, frozen=True, kw_only=True):
    """One operator (all its calls with these shapes) or one profiled launch."""

    name: str  # of the operator, or the kernel for short
    kind: str  # operator or launch
    calls: int  # with these shapes, in the recording
    time_ns: int  # of all these calls
    bound: str | None  # memory or compute: the roof above the point
    how: str  # why the bound is that one
    dtype: str | None  # the format whose roof it is held against
    flops: float | None  # of all these calls
    bytes: float | None  # of all these calls, at least
    intensity: float | None  # FLOP per byte
    balance: float | None  # FLOP per byte where its two roofs meet
    flop_per_s: float | None  # reached
    bytes_per_s: float | None  # reached
    roof_ratio: float | None  # reached of its roof; above 1: see the page
    time_at_roof_ns: int | None  # what it would take at its roof
    won_ns: int | None  # time_ns less time_at_roof_ns
    waits: bool  # far below both roofs: it waits for something else
    shapes: str | None = None  # of the first inputs: 8192x768 768x50257
    launch: int | None = None
    levels: tuple[LevelInfo, ...] = ()  # only where counters were recorded


class ThroughputInfo(_Part, frozen=True, kw_only=True):
    """Tokens or samples."""

    unit: str  # tokens or samples
    per_step: int  # in a typical step
    per_s: float | None  # over step_ns
    basis: str  # where the number was read


class UtilisationInfo(_Part, frozen=True, kw_only=True):
    """The arithmetic of a typical step."""

    step_ns: int  # of a typical step: see step_how
    step_how: str  # measured or estimated without the profiler, or as recorded
    flops_per_step: int  # of matrix work, recomputation included
    recomputed_flops_per_step: int  # by checkpointing
    vector_flops_per_step: int  # elementwise and the like; not in MFU
    dtype: str | None  # of most of the FLOPs
    by_dtype: dict[str, int]  # FLOPs a step by format
    devices: int  # that share the work
    peak_flop_per_s: float | None  # of one device, data sheet
    peak_source: str | None  # which data sheet
    mfu: float | None  # share of the peak, without recomputation
    hfu: float | None  # share of the peak, with recomputation
    mfu_unmasked: float | None  # if causal attention counts whole
    measured_peak_flop_per_s: float | None  # measured on this machine
    mfu_of_measured: float | None  # share of the measured peak
    not_modelled_ratio: float | None  # of kernel time: nothing known of it
    throughput: ThroughputInfo | None = None  # null: no inputs to count


class RooflineDocument(_Part, frozen=True, kw_only=True):
    """Everything about one recording's work against the roofs of its device."""

    schema: str = SCHEMA  # this name and version
    path: str  # of the recording
    device: str | None  # as the driver names it
    what: str  # operators or launches
    roofs: tuple[RoofInfo, ...]  # memory first, then the fastest format
    points: tuple[PointInfo, ...]  # longest first
    points_left_out: int = 0  # shorter than those listed
    time_ns: int  # of all kernels
    not_placed_ratio: float | None  # of that time: no place on the roofline
    utilisation: UtilisationInfo | None  # null: no steps or no device
    notes: tuple[str, ...] = ()  # what to know before reading it


def encode_roofline(document: RooflineDocument) -> bytes:
    """The document as JSON."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1)
