"""A synchronisation of the whole device or stream was left in the loop.

## What it looks for
`cudaDeviceSynchronize`, `cudaStreamSynchronize` and `cudaEventSynchronize` (and their HIP and XPU
kin) that no operator needs: the program itself asked for them, with `torch.cuda.synchronize()`,
`stream.synchronize()` or `event.synchronize()`. One that ends each step, in a function that reads a
clock beside it, measures the step on purpose; a wait for an event before a buffer on the host is
filled and sent again, in one function, guards the buffer. Without Python stacks that does not
show, and a wait at the end of each step is told with low confidence. Of JAX's waits some are in no
recorded event: there the host says nothing from its dispatch until the device is done, turn by
turn at one place (told with medium confidence).

## Why it matters
The host waits until the device is done, and the device then waits until the host has launched
again. Each call costs the time the host would have been ahead.

## How to fix it
Remove it; in JAX, `block_until_ready` and what reads a value (`float(loss)`). Values that are
needed can be read a step later: dispatch the next step first, and the device has work while the
host waits. To time phases use CUDA events, recorded now and read later, or `pinchpoint`.

## When to ignore it
In a benchmark's own timing, where it is right, and before a barrier that needs it.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.causal.filled_slots import filled_slots
from pinchpoint.analysis.host.ancestry import above, nearest, parents
from pinchpoint.analysis.host.frames import MOSTLY_RATIO, Owner, owners, shows_python
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.host_waits import WaitReason
from pinchpoint.analysis.time.stopwatches import clock_readings
from pinchpoint.diagnosis.evidence.device_work import Waiting, waiting
from pinchpoint.diagnosis.evidence.whole_run import waits_at
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import MATERIAL_STEP_RATIO, Rule
from pinchpoint.trace import ApiKind, Trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.kinds import UNRECORDED_WAIT

RULE = Rule(needs=("api_calls", "device_ops"), record=CPU_AND_DEVICE)

# JAX's range around reading an array, and its function that does so.
_READS = ("np.asarray(jax.Array)", ": _value")
_LATER = "Dispatch the next step before these values are read: read them a step later, or rarely"
_REMOVE = "Remove the synchronisation; time phases with events of the device instead"
_NO_WAIT = "Do not wait in each step: no block_until_ready, and read values every 50 steps"
SOME_CALLS_NS = 100_000  # reading a clock, appending to a list and returning, while recorded


def check(trace: Trace) -> Iterator[Found]:
    """Synchronisations that the program asked for."""
    asked = waiting(trace, "synchronisations", WaitReason.EXPLICIT)
    if asked is None or _ends_the_recording(trace, asked.api_calls):
        return
    guards = np.isin(asked.api_calls, np.concatenate([*filled_slots(trace).waits, []]))
    if guards.mean() >= MOSTLY_RATIO:
        return
    ends = asked.count <= 1 and _end_steps(trace, asked.api_calls)
    if ends and _beside_a_clock(trace, asked.acts):
        return
    if asked.call == UNRECORDED_WAIT:
        yield _unrecorded(trace, asked)
        return
    yield Found(
        summary=f"The host waits in {asked.call}{asked.where}, {asked.count:.3g} × a step",
        evidence=asked.evidence,
        cost_ns_per_step=asked.waited_ns,
        changes=asked.dropped,
        once_a_step=asked.once_a_step,
        location=asked.place,
        confidence="low" if ends and not shows_python(trace) else "high",
        fix=_LATER if asked.call.endswith(_READS) else _REMOVE,
    )


def _unrecorded(trace: Trace, asked: Waiting) -> Found:
    """Of waits that only silence shows."""
    place = waits_at(trace, asked.place)
    place = place if place is not None and str(place) else None
    where = f" in {place}" if place else ""
    return Found(
        summary=(
            f"The host waits for the device{where} before it dispatches the next step, which the"
            f" device then waits for: {asked.count:.3g} × a step it says nothing until that is done"
        ),
        evidence=asked.evidence,
        cost_ns_per_step=asked.waited_ns,
        changes=asked.dropped,
        location=place,
        confidence="medium",
        fix=_NO_WAIT,
    )


def _ends_the_recording(trace: Trace, waits: Rows) -> bool:
    """Whether nothing was launched after them, in a recording in which no steps are seen.

    Profilers wait for the device before they stop, and such a recording is judged as one step.
    """
    calls = trace.api_calls
    if calls is None or steps(trace).how != "none":
        return False
    launched = calls["start_ns"][np.isin(calls["kind"], (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH))]
    return not len(launched) or bool(calls["start_ns"][waits].min() > launched.max())


def _end_steps(trace: Trace, waits: Rows) -> bool:
    """Whether each is the last thing in its step, so that a harness may have put it there."""
    calls, judged = trace.api_calls, judged_steps(trace)
    assert calls is not None
    at = judged.step_of(calls["start_ns"][waits])
    left = judged.end_ns[at] - calls.end_ns[waits]
    launches = np.isin(calls["kind"], (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH, ApiKind.COPY))
    started = np.sort(calls["start_ns"][launches])
    later = np.searchsorted(started, judged.end_ns[at]) > np.searchsorted(
        started, calls.end_ns[waits]
    )
    length = judged.end_ns[at] - judged.start_ns[at]
    return bool(
        (
            (at >= 0) & ~later & (left <= np.maximum(MATERIAL_STEP_RATIO * length, SOME_CALLS_NS))
        ).all()
    )


def _beside_a_clock(trace: Trace, acts: Rows) -> bool:
    """Whether a clock is read in the function around each wait, or in the one that called that."""
    host = trace.host_ops
    if host is None or not len(acts):
        return False
    none, chain, user = len(host), parents(host), owners(trace) == Owner.USER
    reads = np.zeros(none + 1, np.bool_)
    reads[nearest(chain, user)[clock_readings(trace)]] = True
    reads[none] = False
    around = nearest(chain, user)[acts]
    caller = np.append(above(chain, user), none)[around]
    return bool((reads[around] | reads[caller]).all())
