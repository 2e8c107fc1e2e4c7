"""From a trace with a snapshot (or allocations) to the memory document."""

from typing import Literal

import numpy as np

from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.memory.checkpointing import Checkpointing, checkpointing
from pinchpoint.analysis.memory.composition import Holder, holders
from pinchpoint.analysis.memory.facts import facts
from pinchpoint.analysis.memory.failures import Failure, failures
from pinchpoint.analysis.memory.growth import growth, step_of
from pinchpoint.analysis.memory.history import History, histories
from pinchpoint.analysis.memory.owners.owners import Confidence, MemoryCategory
from pinchpoint.analysis.memory.owners.phases import Phase
from pinchpoint.analysis.memory.shortage import (
    batch_after_failure,
    largest_batch_factor,
    needed_bytes,
    remedies,
)
from pinchpoint.analysis.memory.traced import HOST
from pinchpoint.analysis.memory.waste import waste
from pinchpoint.analysis.memory.what_if import RANKS, Batch, batch, what_ifs
from pinchpoint.diagnosis.commands import program_of, spelt
from pinchpoint.diagnosis.finding import Location
from pinchpoint.errors import UsageError
from pinchpoint.frozen import dataclass
from pinchpoint.report.assemble.findings import findings
from pinchpoint.report.documents.memory import (
    BatchItem,
    CategoryItem,
    DeviceMemory,
    Fact,
    FailureItem,
    FragmentationItem,
    GrowthItem,
    HolderItem,
    LayersItem,
    MemoryReport,
    MemorySource,
    Moment,
    PeakItem,
    RemedyItem,
    WhatIfItem,
)
from pinchpoint.report.words.memory import CATEGORY_WORDS, verdict
from pinchpoint.trace import Frame, Trace

CAPACITY_BYTES = 80 << 30  # of the batch question, unless the trace or the user knows better
MOST_HOLDERS = 60  # rows of a table that is read from the top
_CURVES: tuple[Literal["requested", "allocated", "active", "reserved"], ...] = (
    "requested",
    "allocated",
    "active",
    "reserved",
)


@dataclass(frozen=True)
class Questions:
    """What to ask besides the usual: the moment, the device's size, the ranks of sharding."""

    at: str = "peak"
    capacity_bytes: int | None = None
    ranks: int = RANKS


_USUAL = Questions()


def _how_to_record(trace: Trace) -> str:
    if trace.source.recorder in ("jax", "xprof"):
        return "of JAX's recordings only the .xplane.pb of a GPU names allocations"
    if trace.run is not None:
        option = "--memory" if computes_on_cpu(trace) else "--snapshot"
        return spelt(f"pinchpoint run {option} python train.py", program_of(trace))
    return "record a snapshot (torch.cuda.memory._dump_snapshot) or profile_memory=True"


def memory_report(trace: Trace, questions: Questions = _USUAL) -> MemoryReport:
    """Everything that the recording says; UsageError if it says nothing about memory."""
    found = histories(trace)
    if not found:
        raise UsageError(
            f"{trace.source.path}: nothing in it that says which block was allocated when",
            hint=_how_to_record(trace),
        )
    said = findings(trace)
    devices = tuple(_device(trace, history, questions) for history in found)
    return MemoryReport(
        source=MemorySource(
            path=trace.source.path,
            format=trace.source.format,
            complete=not trace.source.truncated,
        ),
        devices=devices,
        verdict=verdict(devices[0], said.findings),
        findings=said.findings,
        not_checked=said.not_checked,
        not_shown=said.not_shown,
        clear=said.clear,
        crashed=said.crashed,
    )


def _device(trace: Trace, history: History, questions: Questions) -> DeviceMemory:
    checkpoint = checkpointing(history)
    grown = growth(history)
    capacity = questions.capacity_bytes or next(
        (d.memory_bytes for d in trace.devices if d.number == history.device and d.memory_bytes),
        CAPACITY_BYTES,
    )
    larger = _larger_batch(history, questions, capacity)
    return DeviceMemory(
        device=None if history.device == HOST else history.device,
        events=len(history.replay),
        beginning=history.replay.beginning,
        doubts=history.replay.doubts,
        peaks={
            n: _peak(history, n) for n in _CURVES if n != "reserved" or _knows_reserved(history)
        },
        moments=_moments(history, questions.at),
        layers=None if checkpoint is None else _layers(checkpoint),
        growth=GrowthItem(
            steps=history.steps.how,
            floor=tuple(grown.floor.tolist()),
            bytes_per_step=grown.bytes_per_step,
            why_not=grown.why_not,
        ),
        fragmentation=_fragmentation(history),
        failures=tuple(_failure(history, f) for f in failures(history)),
        facts=tuple(Fact(id=f.id, text=f.text, bytes=f.bytes) for f in facts(trace, history)),
        what_if=_what_if(history, questions.ranks),
        batch=None if larger is None else _batch(larger),
    )


def _layers(found: Checkpointing) -> LayersItem:
    return LayersItem(
        location=location(found.line),
        count=len(found.layers),
        bytes_per_layer=tuple(one.kept_bytes for one in found.layers),
        share_of_activations=found.share_of_activations,
        checkpointed_peak=found.peak_bytes,
        checkpointing_saves=found.saved_bytes,
    )


def _larger_batch(history: History, questions: Questions, capacity: int) -> Batch | None:
    """After a failure its own answer stands alone, unless the user asks for another device."""
    if not len(history.replay) or history.device == HOST:  # what it held before is not known
        return None
    failed = failures(history)
    if not failed:
        return batch(history, capacity)
    if questions.capacity_bytes is None:
        return None
    return batch_after_failure(history, failed[-1], capacity)


def _batch(found: Batch) -> BatchItem:
    return BatchItem(
        capacity=found.capacity_bytes,
        factor=found.factor,
        fixed=found.fixed_bytes,
        per_batch=found.per_batch_bytes,
        assumption=found.assumption,
        left_out=found.left_out_bytes,
        of_failing=found.of_failing,
    )


def _peak(
    history: History, name: Literal["requested", "allocated", "active", "reserved"]
) -> PeakItem:
    peak = history.replay.peak(name)
    return PeakItem(
        bytes=peak.bytes,
        at_most=peak.at_most,
        event=peak.event,
        time_us=time_of(history, peak.event),
    )


def _knows_reserved(history: History) -> bool:
    """Whether the recording says what is held from the driver: XLA's does not."""
    known = bool(history.replay.reserved.any()) or not history.replay.allocated.any()
    return history.snapshot.layout and known


def time_of(history: History, event: int) -> int | None:
    """Unix time of an event, where the file has times."""
    times = history.replay.time_us
    return int(times[event]) if times is not None and 0 <= event < len(times) else None


def _moments(history: History, at: str) -> tuple[Moment, ...]:
    """The peak, the end, the last failure, and the moment asked for."""
    wanted = {"peak": history.peak_event, "end": history.last}
    failed = failures(history)
    if failed:
        wanted["oom"] = failed[-1].event
    if at not in wanted:
        wanted["time"] = _event_at(history, at)
        at = "time"
    order = [at, *(name for name in wanted if name != at)]
    return tuple(_moment(history, name, wanted[name]) for name in order)


def _event_at(history: History, at: str) -> int:
    """The last event at or before a time: ``1.5s`` after the first, or Unix microseconds."""
    if at == "oom":
        raise UsageError(
            "no request failed in this recording", hint="--at peak, --at end or --at 1.5s"
        )
    times = history.replay.time_us
    scale = {"us": 1, "ms": 1000, "s": 1_000_000}
    unit = next((u for u in ("us", "ms", "s") if at.endswith(u)), "")
    try:
        number = float(at[: len(at) - len(unit)] if unit else at)
    except ValueError:
        raise UsageError(
            f"--at {at}: not a moment", hint="--at peak, oom, end, or a time such as 1.5s"
        ) from None
    if times is None or not len(times):
        raise UsageError("this recording has no times", hint="--at peak or --at end")
    when = number if not unit else float(times[0]) + number * scale[unit]
    return int(np.searchsorted(times, when, "right")) - 1


def _moment(history: History, what: str, event: int) -> Moment:
    replay = history.replay
    now = replay.base if event < 0 else tuple(int(getattr(replay, name)[event]) for name in _CURVES)
    held = holders(history, event)
    step = int(step_of(history, np.array([event]))[0]) if len(history.steps) else -1
    phase = Phase(int(history.phases.of_event[event])) if event >= 0 else Phase.UNKNOWN
    return Moment(
        what=what,
        event=event,
        time_us=time_of(history, event),
        phase=phase.name.lower(),
        step=step if step >= 0 else None,
        requested=now[0],
        allocated=now[1],
        active=now[2],
        reserved=now[3] if _knows_reserved(history) else None,
        categories=_categories(held),
        holders=tuple(_holder(history, h) for h in held[:MOST_HOLDERS]),
        holders_left_out=max(len(held) - MOST_HOLDERS, 0),
    )


def _categories(held: tuple[Holder, ...]) -> tuple[CategoryItem, ...]:
    out = []
    for category in MemoryCategory:
        mine = [h for h in held if h.category == category]
        out.append(
            CategoryItem(
                category=CATEGORY_WORDS[category],
                bytes=sum(h.bytes for h in mine),
                blocks=sum(h.blocks for h in mine),
                confidence=Confidence(min(h.confidence for h in mine)).name.lower()
                if mine
                else None,
            )
        )
    return tuple(out)


def _holder(history: History, held: Holder) -> HolderItem:
    stack = () if held.stack is None else history.signs.stacks[held.stack]
    return HolderItem(
        category=CATEGORY_WORDS[held.category],
        bytes=held.bytes,
        blocks=held.blocks,
        largest_bytes=held.largest_bytes,
        phase=held.phase.name.lower(),
        confidence=held.confidence.name.lower(),
        operation=held.operation,
        location=held.place and location(held.place),
        stack=tuple(f"{f.file}:{f.line} {f.function}" if f.line else f.function for f in stack),
    )


def location(frame: Frame) -> Location:
    """Where in the program a frame is."""
    return Location(file=frame.file, line=frame.line or None, function=frame.function)


def _fragmentation(history: History) -> FragmentationItem | None:
    if not history.has_layout:
        return None
    found = waste(history)
    at = found.at_peak
    return FragmentationItem(
        reserved=at.reserved_bytes,
        active=int(at.live_bytes.sum()),
        rounding=at.rounding_bytes,
        split_free=at.split_free_bytes,
        whole_free=at.whole_free_bytes,
        largest_hole=int(at.hole_bytes.max(initial=0)),
        partly_used_segments=at.partly_used,
        segments=len(at.ranges),
        retries=len(found.retries),
    )


def _failure(history: History, failure: Failure) -> FailureItem:
    return FailureItem(
        event=failure.event,
        wanted=failure.wanted_bytes,
        device_free=failure.device_free_bytes,
        live=failure.live_bytes,
        reserved=failure.reserved_bytes,
        limit=failure.limit_bytes,
        capped=failure.capped,
        usable_free=failure.usable_free_bytes,
        largest_hole=failure.largest_hole_bytes,
        fragmented=failure.fragmented,
        needed=needed_bytes(failure),
        batch_factor_that_fits=largest_batch_factor(history, failure),
        remedies=tuple(
            RemedyItem(label=r.label, needed=r.needed_bytes, fits=r.fits, assumption=r.assumption)
            for r in remedies(history, failure)
        ),
    )


def _what_if(history: History, ranks: int) -> tuple[WhatIfItem, ...]:
    if not len(history.replay):
        return ()
    return tuple(
        WhatIfItem(
            id=a.id,
            label=a.label,
            peak=a.peak_bytes,
            saves=a.saved_bytes,
            assumption=a.assumption,
            lossless=a.lossless,
        )
        for a in what_ifs(history, ranks)
    )
