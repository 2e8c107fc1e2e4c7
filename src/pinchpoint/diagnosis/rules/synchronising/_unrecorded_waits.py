"""Waits for the device that no call shows: XLA's recordings have none of the host's waits.

Seen is that the host says nothing: from a moment at which the device is at work on what was
dispatched until after the last of it is done, step by step.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.frames import frame_of
from pinchpoint.analysis.host.launches import issued
from pinchpoint.analysis.host.timeline import NO_ROW, host_rows
from pinchpoint.analysis.replay import RemoveHostTime
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.gaps import host_did
from pinchpoint.diagnosis.evidence.device_work import location_of
from pinchpoint.diagnosis.evidence.whole_run import waits_at
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Ints, Mask

# A host that was at work unseen would end at any time, not always soon after the device.
LEAST_STEPS_RATIO = 0.9
MOST_LATE_RATIO = 0.25  # of the silence: what Python does after it, and the way back to it
LEAST_SILENCE_NS = 50_000  # several times what a dispatch leaves between two of its parts
# Functions of jax.Array and jax that wait, as the Python tracer names them.
_WAITING = {"block_until_ready", "_value", "__array__", "item", "tolist", "__float__", "device_get"}


@dataclass(frozen=True, eq=False)
class _Silences:
    """Stretches in which the main thread said nothing, one a row."""

    start_ns: Ints
    end_ns: Ints
    done_ns: Ints  # when the device was done with what had been dispatched; 0 where it was before
    row: Ints  # of the host, of the longest piece


def unrecorded_waits(trace: Trace) -> Iterator[Found]:
    """What waiting for the device at every step costs, where only silence shows it."""
    windows = judged_steps(trace)
    if trace.compiled_ops is None or trace.device_ops is None or len(windows) < 2:
        return
    found = _silences(trace)
    late = found.end_ns - found.done_ns
    silent = found.end_ns - found.start_ns
    waits = (found.done_ns > found.start_ns) & (late <= MOST_LATE_RATIO * silent)
    waits &= silent >= LEAST_SILENCE_NS
    start, end = found.start_ns[waits], found.done_ns[waits]
    step = np.searchsorted(windows.start_ns, end, "left") - 1
    of_steps = np.bincount(np.clip(step, 0, None), end - start, len(windows))
    if not len(start) or (of_steps > 0).mean() < LEAST_STEPS_RATIO:
        return
    cost = round(float(of_steps.mean()))
    place = waits_at(trace, location_of(trace, int(found.row[waits][np.argmax(end - start)])))
    location = place if str(place) else None
    where = f" in {location}" if location else ""
    yield Found(
        summary=(
            f"The host waits for the device{where} before it dispatches the next step, which the"
            " device then waits for"
        ),
        evidence=(
            Evidence("silent until the device is done", cost, "ns per step"),
            Evidence("goes on after it", round(float(np.median(late[waits]))), "ns later"),
            Evidence("steps in which it does", round(float((of_steps > 0).mean()), 2), "share"),
        ),
        cost_ns_per_step=cost,
        changes=(RemoveHostTime(start, end),),
        location=location,
        confidence="medium",
        fix="Do not wait in each step: no block_until_ready, and read values every 50 steps",
    )


def _silences(trace: Trace) -> _Silences:
    """Silences of the thread of the steps, from the first judged step to the last."""
    windows = judged_steps(trace)
    span = np.array([windows.start_ns[0]]), np.array([windows.end_ns[-1]])
    did = host_did(trace, np.array([steps(trace).thread]), *span)
    quiet = _says_nothing(trace, did.row)
    first = np.flatnonzero(quiet & ~np.append(False, quiet[:-1]))
    last = np.flatnonzero(quiet & ~np.append(quiet[1:], False))
    start, end = did.start_ns[first], did.end_ns[last]
    by, ops = issued(trace), trace.device_ops
    assert ops is not None
    order = np.argsort(by.start_ns, kind="stable")
    done = np.append(0, np.maximum.accumulate(ops.end_ns[order]))
    done = done[np.searchsorted(by.start_ns[order], start)]
    return _Silences(start, end, np.where(done <= end, done, 0), did.row[first])


def _says_nothing(trace: Trace, row: Ints) -> Mask:
    """Between rows, in the marker of a step, or in a function that waits."""
    rows = host_rows(trace)
    marks = [] if trace.steps is None else np.unique(trace.steps["name"]).tolist()
    quiet = {*marks}
    for name in np.unique(rows.name[row[row != NO_ROW]]).tolist():
        frame = frame_of(trace.names[name])
        if frame is not None and frame.function in _WAITING:
            quiet.add(name)
    mask: Mask = (row == NO_ROW) | np.isin(rows.name[np.maximum(row, 0)], sorted(quiet))
    return mask


__all__ = ["unrecorded_waits"]
