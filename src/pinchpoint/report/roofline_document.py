"""The roofline as one document: roofs, points, and how much of the peak a step uses."""

import msgspec

SCHEMA = "pinchpoint.roofline/1"


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the parts."""


class RoofInfo(_Part, frozen=True, kw_only=True):
    """One ceiling; ``dtype`` is null for memory."""

    dtype: str | None
    per_s: float
    unit: str  # FLOP/s or bytes/s
    source: str
    measured: bool
    balance: float | None = None  # FLOP/byte where it meets memory


class LevelInfo(_Part, frozen=True, kw_only=True):
    """A point at one level of the memory."""

    name: str
    bytes: float
    intensity: float | None
    peak_bytes_per_s: float | None


class PointInfo(_Part, frozen=True, kw_only=True):
    """One operator (all its calls with these shapes) or one profiled launch."""

    name: str
    kind: str
    calls: int
    time_ns: int
    bound: str | None  # memory or compute: the roof above the point
    how: str
    dtype: str | None
    flops: float | None
    bytes: float | None
    intensity: float | None
    balance: float | None
    flop_per_s: float | None
    bytes_per_s: float | None
    roof_ratio: float | None
    time_at_roof_ns: int | None
    won_ns: int | None
    waits: bool
    shapes: str | None = None  # of the first inputs: 8192x768 768x50257
    launch: int | None = None
    levels: tuple[LevelInfo, ...] = ()


class ThroughputInfo(_Part, frozen=True, kw_only=True):
    """Tokens or samples."""

    unit: str
    per_step: int
    per_s: float | None
    basis: str


class UtilisationInfo(_Part, frozen=True, kw_only=True):
    """The arithmetic of a typical step."""

    step_ns: int
    step_how: str
    flops_per_step: int
    recomputed_flops_per_step: int
    vector_flops_per_step: int
    dtype: str | None
    by_dtype: dict[str, int]
    devices: int
    peak_flop_per_s: float | None
    peak_source: str | None
    mfu: float | None
    hfu: float | None
    mfu_unmasked: float | None
    measured_peak_flop_per_s: float | None
    mfu_of_measured: float | None
    not_modelled_ratio: float | None
    throughput: ThroughputInfo | None = None


class RooflineDocument(_Part, frozen=True, kw_only=True):
    """Everything about one recording's work against the roofs of its device."""

    schema: str = SCHEMA
    path: str
    device: str | None
    what: str  # operators or launches
    roofs: tuple[RoofInfo, ...]
    points: tuple[PointInfo, ...]
    points_left_out: int = 0
    time_ns: int
    not_placed_ratio: float | None
    utilisation: UtilisationInfo | None
    notes: tuple[str, ...] = ()


def encode_roofline(document: RooflineDocument) -> bytes:
    """The document as JSON."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1)
