"""The document of ``pinchpoint memory``: ``pinchpoint.memory/1``.

All sizes are bytes. *requested* is what the program asked for, *allocated* what its blocks take,
*active* the same with blocks that a stream still uses, *reserved* what is held from the driver. An
event is a position in the device's recording, -1 before the first; times are Unix microseconds.
"""

import msgspec

from pinchpoint.diagnosis.finding import Finding, Location, NotShown, Unanswered
from pinchpoint.json_text import indented

SCHEMA = "pinchpoint.memory/1"


class MemorySource(msgspec.Struct, frozen=True, kw_only=True):
    """What was read."""

    path: str  # as it was given
    format: str  # memory snapshot, or a trace with profile_memory
    complete: bool  # false: the file was cut off


class PeakItem(msgspec.Struct, frozen=True, kw_only=True):
    """The highest value of a curve; ``at_most`` where the recording leaves room."""

    bytes: int  # at least
    at_most: int  # the same where nothing is in doubt
    event: int  # position in the recording
    time_us: int | None = None  # when


class CategoryItem(msgspec.Struct, frozen=True, kw_only=True):
    """Requested bytes of one category; ``confidence`` is the lowest among its blocks."""

    category: str  # parameters, gradients, activations, …
    bytes: int  # requested
    blocks: int  # how many
    confidence: str | None = None  # high, medium, low


class HolderItem(msgspec.Struct, frozen=True, kw_only=True):
    """Live blocks of one category from one stack."""

    category: str  # parameters, gradients, activations, …
    bytes: int  # requested, of all its blocks
    blocks: int  # how many
    largest_bytes: int  # of one block
    phase: str  # in which they were allocated
    confidence: str  # high, medium, low
    operation: str | None = None  # that allocated them, such as nn.linear
    location: Location | None = None  # the line of the program
    stack: tuple[str, ...] = ()  # innermost first


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """The state right after one event."""

    what: str  # peak, oom, end, time
    event: int  # position in the recording
    time_us: int | None  # when
    phase: str  # forward, backward, optimizer, …
    step: int | None  # that it lies in
    requested: int  # by the program
    allocated: int  # by the allocator, rounded up
    active: int  # with what a stream still uses
    reserved: int | None  # null where the recording does not say what the driver gave
    categories: tuple[CategoryItem, ...]  # largest first
    holders: tuple[HolderItem, ...] = ()  # largest first
    holders_left_out: int = 0  # smaller than those listed


class LayersItem(msgspec.Struct, frozen=True, kw_only=True):
    """The repeated layers whose activations are live at the peak."""

    location: Location  # the line that calls them
    count: int  # of layers
    bytes_per_layer: tuple[int, ...]  # kept from forward to backward
    share_of_activations: float  # 0 to 1
    checkpointed_peak: int  # requested peak with checkpointing
    checkpointing_saves: int  # of the requested peak


class GrowthItem(msgspec.Struct, frozen=True, kw_only=True):
    """The least that was requested within each step, and what grows."""

    steps: str  # how the steps were found
    floor: tuple[int, ...]  # one value a step
    bytes_per_step: int  # median growth of the floor
    why_not: str = ""  # why leaks were not looked for


class FragmentationItem(msgspec.Struct, frozen=True, kw_only=True):
    """Where reserved memory goes at the peak of active memory."""

    reserved: int  # from the driver
    active: int  # in use
    rounding: int  # allocated less requested
    split_free: int  # free in partly used segments: cannot be given back
    whole_free: int  # free segments: given back when needed
    largest_hole: int  # the largest free piece
    partly_used_segments: int  # with free pieces in them
    segments: int  # of all
    retries: int  # times the cache was emptied to go on


class RemedyItem(msgspec.Struct, frozen=True, kw_only=True):
    """A change to a step that failed."""

    label: str  # the change
    needed: int  # by the failing step, with it
    fits: bool  # within the limit
    assumption: str  # what the figure rests on


class FailureItem(msgspec.Struct, frozen=True, kw_only=True):
    """A request that failed, with the state at that moment."""

    event: int  # position in the recording
    wanted: int  # by the request
    device_free: int | None  # as the driver says
    live: int  # requested at that moment
    reserved: int  # from the driver at that moment
    limit: int  # that could be reserved
    capped: bool  # a limit of the process, not of the device
    usable_free: int  # free in segments that it may use
    largest_hole: int  # the largest free piece
    fragmented: bool  # enough is free, in too small pieces
    needed: int  # by the whole step, at least
    batch_factor_that_fits: float | None  # of the failing batch; null: not known
    remedies: tuple[RemedyItem, ...]  # gentlest first


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Something worth knowing that is no fault."""

    id: str  # stable, kebab case
    text: str  # one sentence
    bytes: int | None = None  # that it is about


class WhatIfItem(msgspec.Struct, frozen=True, kw_only=True):
    """The requested peak with one change."""

    id: str  # stable, kebab case
    label: str  # the change
    peak: int  # requested, with it
    saves: int  # of the requested peak
    assumption: str  # what the figure rests on
    lossless: bool  # the program computes the same numbers


class BatchItem(msgspec.Struct, frozen=True, kw_only=True):
    """The largest batch that fits, as a multiple of the recorded one, or of the one that failed.

    ``fixed`` and ``per_batch`` are bytes at the moment that fills the device first; ``left_out``
    are those that leak, which count as mended.
    """

    capacity: int  # of the device
    factor: float  # times the recorded batch, or the failing one
    fixed: int  # does not grow with the batch
    per_batch: int  # grows with it
    assumption: str  # what the figure rests on
    left_out: int = 0  # leaks
    of_failing: bool = False  # a multiple of the batch that failed


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one device."""

    device: int | None  # None: memory of the host
    events: int  # in its recording
    beginning: str  # what the recording begins with
    doubts: tuple[str, ...]  # what makes figures uncertain
    peaks: dict[str, PeakItem]  # requested, allocated, active, reserved
    moments: tuple[Moment, ...]  # the peak, the end, a failure, a time asked for
    layers: LayersItem | None  # null: no repeated layers
    growth: GrowthItem  # from step to step
    fragmentation: FragmentationItem | None  # null: no reserved memory is recorded
    failures: tuple[FailureItem, ...]  # requests that failed
    facts: tuple[Fact, ...]  # worth knowing, no fault
    what_if: tuple[WhatIfItem, ...]  # largest saving first
    batch: BatchItem | None  # null: nothing grows with it, or a failure says it


class MemoryFinding(Finding, frozen=True, kw_only=True):
    """A finding, with how much it matters: high, medium, low or negligible."""

    severity: str = "medium"


class MemoryReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a recording of memory says."""

    schema: str = SCHEMA  # this name and version
    source: MemorySource  # the file
    devices: tuple[DeviceMemory, ...]  # one a device of the recording
    verdict: str  # who holds the peak, in one sentence
    findings: tuple[MemoryFinding, ...] = ()  # largest stake first
    not_checked: tuple[Unanswered, ...] = ()  # causes that this recording cannot show
    not_shown: tuple[NotShown, ...] = ()  # causes that were found and are small
    clear: tuple[str, ...] = ()  # ids of rules that found nothing
    crashed: tuple[Unanswered, ...] = ()  # rules that failed: please report them


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One number before and after."""

    what: str  # the number
    before: int  # bytes
    after: int  # bytes


class MemoryComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two recordings side by side, the first of each list mattering most."""

    schema: str = "pinchpoint.memory-comparison/1"
    before: MemorySource  # the first recording
    after: MemorySource  # the second one
    peaks: tuple[Change, ...]  # of each curve
    categories: tuple[Change, ...]  # at the peak
    holders: tuple[Change, ...]  # at the peak
    predictions: tuple[str, ...]  # what was predicted, and what came
    gone: tuple[str, ...]  # findings only of the first
    new: tuple[str, ...]  # findings only of the second


def encode_memory(report: MemoryReport | MemoryComparison) -> bytes:
    """The document as JSON."""
    return indented(report)


def decode_memory(text: bytes) -> MemoryReport:
    """A report from its JSON; msgspec.ValidationError if it is none."""
    return msgspec.json.decode(text, type=MemoryReport)
