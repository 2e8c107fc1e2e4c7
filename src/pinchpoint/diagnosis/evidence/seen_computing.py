"""Of a recording without stacks: what the place costs at which the program computes most."""

from dataclasses import replace

import numpy as np

from pinchpoint.analysis.causal.computing import HostComputing
from pinchpoint.analysis.causal.python_of_places import python_ratio
from pinchpoint.analysis.host.frames import frame_of
from pinchpoint.analysis.host.on_cpu import computes_on_cpu, cpu_operators
from pinchpoint.analysis.host.source_lines import functions_of
from pinchpoint.analysis.host.timeline import NO_ROW
from pinchpoint.analysis.mean.growth import grown_on_core_ns
from pinchpoint.analysis.mean.mean_step import mean_without_profiler_ns
from pinchpoint.analysis.mean.rare_steps import COLLECT, rare_causes
from pinchpoint.analysis.mean.stacks import own_frame
from pinchpoint.analysis.mean.what_if import step_base_ns, what_if_mean
from pinchpoint.analysis.replay import Change, RemoveHostTime
from pinchpoint.analysis.replay.predict import corrected_step_ns
from pinchpoint.analysis.steps.in_steps import per_step, rows_in_steps
from pinchpoint.analysis.time.accounting import breakdown
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis.evidence.thread_of_steps import steps_on_main_thread
from pinchpoint.diagnosis.evidence.whole_run import (
    CALL_NS,
    Looks,
    collected_ratio,
    computes_at,
    is_in,
    waited_before,
)
from pinchpoint.diagnosis.finding import Location
from pinchpoint.diagnosis.rule import shows_torch
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, distinct

# Host time varies by a tenth between runs of one program.
LEAST_GAIN_RATIO = 0.10
# Less a step may as well be the Python of a few modules, recorded with stacks.
LEAST_NS = 500_000
PYTHON_ON_HOST = GapKind.PYTHON.id.replace("idle-", "host-")  # of the accounting, without a device
LEFT_RATIO = 0.7  # of the looks at collections: then they are those of what is made there


@dataclass(frozen=True)
class SeenComputing:
    """What a step would win without the function in which looks found the program computing."""

    looks: Looks
    calling_ns: (
        int  # of the recorded step, in Python that the device waits for, or outside operators
    )
    garbage_ns: int  # of the mean step, in collecting what is made there
    grown_ns: int  # of the mean step, that the thread of the steps takes longer later in the run
    saving_ns: tuple[int, int]


@once_per_trace
def seen_computing(trace: Trace) -> SeenComputing | None:
    """None where the recording has stacks, or where it is not material."""
    looks, parts, base_ns = computes_at(trace), breakdown(trace), step_base_ns(trace)
    if looks is None or base_ns is None or _has_more(trace) or not parts.typical_ns:
        return None
    calling: float = parts.of_part(GapKind.PYTHON.id)
    if computes_on_cpu(trace):
        calling += parts.of_part(PYTHON_ON_HOST) + _called_ns(trace)
    unrecorded_ns, garbage_ns, grown_ns = _unrecorded(trace)
    calling_ns = round(min(calling / parts.typical_ns, 1.0) * (base_ns - unrecorded_ns))
    low, high = (round(ratio * (calling_ns + garbage_ns + grown_ns)) for ratio in looks.sure_ratios)
    if low < max(LEAST_GAIN_RATIO * base_ns, LEAST_NS):
        return None
    spent_ns = round(_spent_ratio(trace, looks) * base_ns) or low
    saving_ns = min(low, spent_ns), max(high, spent_ns)
    return SeenComputing(looks, calling_ns, garbage_ns, grown_ns, saving_ns)


def _spent_ratio(trace: Trace, looks: Looks) -> float:
    """Of the main thread's time between looks, what ended there: the same asked of the whole run,
    steps longer than the recorded ones and looks that came late included. 0 where not known."""
    samples = trace.run.samples if trace.run else None
    main = None if samples is None else next((t for t in samples.threads if t.main), None)
    if main is None or looks.place.at is None:
        return 0.0
    place = (looks.place.at.file, looks.place.at.function)
    there = sum(one.us for one in main.spent if is_in(one.frames, place))
    return there / max(sum(one.us for one in main.spent), 1)


FEWEST_LOOKS = 100  # at the thread of the steps: of fewer, a half is told no closer than a tenth


def spent_in_ns(trace: Trace, place: Location | None) -> int:
    """Of the mean step without the profiler, the time in a function of a program on a CPU by looks
    at the steps that were not recorded; 0 where that is not known.

    Recording makes all that it sees longer, but not what one call of C does: the function has a
    smaller share of recorded steps. What it calls of torch is operators and their dispatch, which
    are no part of what the host computes there.
    """
    samples, base_ns = trace.run.samples if trace.run else None, step_base_ns(trace)
    main = None if samples is None else next((t for t in samples.threads if t.main), None)
    alone = computes_on_cpu(trace) and steps_on_main_thread(trace)
    if place is None or main is None or base_ns is None or not alone:
        return 0
    if sum(one.looks for one in main.spent) < FEWEST_LOOKS:
        return 0
    assert samples is not None
    late, at = waited_before(trace, samples), (place.file, place.function)
    python = [one for one in main.spent if one.frames not in late and not _in_torch(one.frames)]
    own = ((own_frame(one.frames), one) for one in python)
    mine = [one for frame, one in own if frame and (frame.file, frame.function) == at]
    # Looks that came at an operator, for want of the lock, were due in Python that kept it, as
    # those were that came there.
    late_us = sum(one.us for one in main.spent if one.frames in late)
    kept = sum(one.held_us for one in mine) / max(sum(one.held_us for one in python), 1)
    there = sum(one.us for one in mine) + late_us * kept
    return round(there / max(sum(one.us for one in main.spent), 1) * base_ns)


@dataclass(frozen=True, eq=False)
class Looked:
    """What a fix of a place takes away, and how long looks found it there; 0 where they add
    nothing to what was recorded."""

    changes: tuple[Change, ...]
    at_best: tuple[Change, ...] = ()
    ns: int = 0


def by_looks(
    trace: Trace,
    found: HostComputing,
    what: Ints,
    place: Location | None,
    changes: tuple[Change, ...],
) -> Looked:
    """Stretches of a function held against looks at the steps that were not recorded.

    Where these found it longer, as much may be won at best, without the part of operators that it
    calls. Where they found it shorter, recording made it so long, as it does calls by the thousand:
    then as much of each stretch goes.
    """
    after, seen_ns = what_if_mean(trace, changes), spent_in_ns(trace, place)
    if after is None or not seen_ns:
        return Looked(changes)
    own_ns = round(python_ratio(trace, found, what) * seen_ns)
    if own_ns > after.saving_ns:
        none = np.zeros(0, np.int64)
        more = RemoveHostTime(none, none, own_ns - after.saving_ns)
        return Looked(changes, (*changes, more), own_ns)
    functions = distinct(functions_of(trace, found.row[what])).tolist()
    frames = [frame_of(trace.names[name]) for name in functions if name != NO_ROW]
    at = (place.file, place.function) if place else None
    if seen_ns >= after.saving_ns or any(f is None or (f.file, f.function) != at for f in frames):
        return Looked(changes)
    left = seen_ns / after.saving_ns
    shorter = [
        replace(one, end_ns=one.start_ns + ((one.end_ns - one.start_ns) * left).astype(np.int64))
        if isinstance(one, RemoveHostTime)
        else one
        for one in changes
    ]
    return Looked(tuple(shorter), (), seen_ns)


def _in_torch(frames: tuple[str, ...]) -> bool:
    """Whether the function of the program had called torch's own Python."""
    own = own_frame(frames)
    for name in frames:
        if own is not None and frame_of(name) == own:
            return False
        if name.startswith("torch/"):
            return True
    return False


def leaves_garbage(trace: Trace) -> bool:
    """Whether collections are those of what is made where the program computes most."""
    seen = seen_computing(trace)
    return seen is not None and seen.garbage_ns > 0


def garbage_left_ns(trace: Trace, place: Location | None) -> int:
    """What collections of what this function makes add to the mean step, if it is where looks saw
    the program compute most."""
    looks = computes_at(trace)
    at = None if looks is None else looks.place.at
    if at is None or place is None or (at.file, at.function) != (place.file, place.function):
        return 0
    return _unrecorded(trace)[1]


def _unrecorded(trace: Trace) -> tuple[int, int, int]:
    """What the mean step of the run takes beyond the recorded ones; of it, what collections of
    what is made at this place take, and what its steps' own thread takes longer later."""
    mean_ns, usual_ns = mean_without_profiler_ns(trace), corrected_step_ns(trace)
    if mean_ns is None or usual_ns is None:
        return 0, 0, 0
    far = [c for c in rare_causes(trace) if c.recurs and c.kind is GapKind.GC]
    garbage_ns = sum(c.ns_per_step for c in far if c.place.inside != COLLECT)
    garbage_ns = garbage_ns if collected_ratio(trace) >= LEFT_RATIO else 0
    return max(mean_ns - usual_ns, 0), garbage_ns, grown_on_core_ns(trace)


def _called_ns(trace: Trace) -> float:
    """Of a step, in operators so short that calling them is what takes the time."""
    host, calls = trace.host_ops, cpu_operators(trace)
    assert host is not None
    inside = np.bincount(calls.parent[calls.operator], minlength=len(host) + 1)[:-1]
    small = calls.operator & (calls.own_ns <= CALL_NS * (1 + inside)) & rows_in_steps(trace, host)
    return per_step(trace, int(calls.own_ns[small].sum()))


def _has_more(trace: Trace) -> bool:
    """Whether the recording itself tells, or cannot say what passes outside operators."""
    named = trace.run.named if trace.run else None
    recorded = [one.host_ops for one in (trace, named) if one is not None]
    stacks = any(ops is not None and (ops["kind"] == HostKind.PYTHON).any() for ops in recorded)
    return stacks or not shows_torch(trace)
