"""The document of ``pinchpoint memory``: ``pinchpoint.memory/1``.

All sizes are bytes. *requested* is what the program asked for, *allocated* what its blocks take,
*active* the same with blocks that a stream still uses, *reserved* what is held from the driver. An
event is a position in the device's recording, -1 before the first; times are Unix microseconds.
"""

import msgspec

from pinchpoint.report.document import FindingItem, LocationInfo, NotCheckedItem

SCHEMA = "pinchpoint.memory/1"


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the parts."""


class MemorySource(_Part, frozen=True, kw_only=True):
    """What was read."""

    path: str
    format: str
    complete: bool


class PeakItem(_Part, frozen=True, kw_only=True):
    """The highest value of a curve; ``at_most`` where the recording leaves room."""

    bytes: int
    at_most: int
    event: int
    time_us: int | None = None


class CategoryItem(_Part, frozen=True, kw_only=True):
    """Requested bytes of one category; ``confidence`` is the lowest among its blocks."""

    category: str
    bytes: int
    blocks: int
    confidence: str | None = None


class HolderItem(_Part, frozen=True, kw_only=True):
    """Live blocks of one category from one stack."""

    category: str
    bytes: int
    blocks: int
    largest_bytes: int
    phase: str
    confidence: str
    operation: str | None = None
    location: LocationInfo | None = None
    stack: tuple[str, ...] = ()


class Moment(_Part, frozen=True, kw_only=True):
    """The state right after one event."""

    what: str  # peak, oom, end, time
    event: int
    time_us: int | None
    phase: str
    step: int | None
    requested: int
    allocated: int
    active: int
    reserved: int | None  # null where the recording does not say what the driver gave
    categories: tuple[CategoryItem, ...]
    holders: tuple[HolderItem, ...] = ()
    holders_left_out: int = 0


class LayersItem(_Part, frozen=True, kw_only=True):
    """The repeated layers whose activations are live at the peak."""

    location: LocationInfo
    count: int
    bytes_per_layer: tuple[int, ...]
    share_of_activations: float
    checkpointed_peak: int
    checkpointing_saves: int


class GrowthItem(_Part, frozen=True, kw_only=True):
    """The least that was requested within each step, and what grows."""

    steps: str
    floor: tuple[int, ...]
    bytes_per_step: int
    why_not: str = ""


class FragmentationItem(_Part, frozen=True, kw_only=True):
    """Where reserved memory goes at the peak of active memory."""

    reserved: int
    active: int
    rounding: int
    split_free: int  # free in partly used segments: cannot be given back
    whole_free: int  # free segments: given back when needed
    largest_hole: int
    partly_used_segments: int
    segments: int
    retries: int


class RemedyItem(_Part, frozen=True, kw_only=True):
    """A change to a step that failed."""

    label: str
    needed: int
    fits: bool
    assumption: str


class FailureItem(_Part, frozen=True, kw_only=True):
    """A request that failed, with the state at that moment."""

    event: int
    wanted: int
    device_free: int | None
    live: int
    reserved: int
    limit: int
    capped: bool
    usable_free: int
    largest_hole: int
    fragmented: bool
    needed: int
    batch_factor_that_fits: float | None
    remedies: tuple[RemedyItem, ...]


class Fact(_Part, frozen=True, kw_only=True):
    """Something worth knowing that is no fault."""

    id: str
    text: str
    bytes: int | None = None


class WhatIfItem(_Part, frozen=True, kw_only=True):
    """The requested peak with one change."""

    id: str
    label: str
    peak: int
    saves: int
    assumption: str
    lossless: bool


class BatchItem(_Part, frozen=True, kw_only=True):
    """The largest batch that fits, as a multiple of the recorded one, or of the one that failed.

    ``fixed`` and ``per_batch`` are bytes at the moment that fills the device first; ``left_out``
    are those that leak, which count as mended.
    """

    capacity: int
    factor: float
    fixed: int
    per_batch: int
    assumption: str
    left_out: int = 0
    of_failing: bool = False


class DeviceMemory(_Part, frozen=True, kw_only=True):
    """Everything about one device."""

    device: int | None  # None: memory of the host
    events: int
    beginning: str
    doubts: tuple[str, ...]
    peaks: dict[str, PeakItem]
    moments: tuple[Moment, ...]
    layers: LayersItem | None
    growth: GrowthItem
    fragmentation: FragmentationItem | None
    failures: tuple[FailureItem, ...]
    facts: tuple[Fact, ...]
    what_if: tuple[WhatIfItem, ...]
    batch: BatchItem | None


class MemoryFinding(FindingItem, frozen=True, kw_only=True):
    """A finding, with how much it matters: high, medium, low or negligible."""

    severity: str = "medium"


class MemoryReport(_Part, frozen=True, kw_only=True):
    """Everything that a recording of memory says."""

    schema: str = SCHEMA
    source: MemorySource
    devices: tuple[DeviceMemory, ...]
    verdict: str
    findings: tuple[MemoryFinding, ...] = ()
    not_checked: tuple[NotCheckedItem, ...] = ()
    clear: tuple[str, ...] = ()
    crashed: tuple[NotCheckedItem, ...] = ()


class Change(_Part, frozen=True, kw_only=True):
    """One number before and after."""

    what: str
    before: int
    after: int


class MemoryComparison(_Part, frozen=True, kw_only=True):
    """Two recordings side by side, the first of each list mattering most."""

    schema: str = "pinchpoint.memory-comparison/1"
    before: MemorySource
    after: MemorySource
    peaks: tuple[Change, ...]
    categories: tuple[Change, ...]
    holders: tuple[Change, ...]
    predictions: tuple[str, ...]
    gone: tuple[str, ...]
    new: tuple[str, ...]


def encode_memory(report: MemoryReport | MemoryComparison) -> bytes:
    """The document as JSON."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1)


def decode_memory(text: bytes) -> MemoryReport:
    """A report from its JSON; msgspec.ValidationError if it is none."""
    return msgspec.json.decode(text, type=MemoryReport)
