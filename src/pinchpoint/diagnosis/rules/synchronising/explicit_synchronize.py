"""A synchronisation of the whole device or stream was left in the loop.

## What it looks for
`cudaDeviceSynchronize`, `cudaStreamSynchronize` and `cudaEventSynchronize` (and their HIP and XPU
kin) that no operator needs: the program itself asked for them, with `torch.cuda.synchronize()`,
`stream.synchronize()` or `event.synchronize()`.

## Why it matters
The host waits until the device is done, and the device then waits until the host has launched
again. Each call costs the time the host would have been ahead.

## How to fix it
Remove it. To time phases use CUDA events, recorded now and read later, or `pinchpoint`.

## When to ignore it
In a benchmark's own timing, where it is right, and before a barrier that needs it.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.host_waits import WaitReason
from pinchpoint.diagnosis.device_work import waiting
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import ApiKind, Trace
from pinchpoint.trace.arrays import Rows

RULE = Rule(needs=("api_calls", "device_ops"), record=CPU_AND_DEVICE)


def check(trace: Trace) -> Iterator[Found]:
    """Synchronisations that the program asked for."""
    asked = waiting(trace, "synchronisations", WaitReason.EXPLICIT)
    if asked is None or _ends_the_recording(trace, asked.api_calls):
        return
    yield Found(
        summary=f"The host waits in {asked.call}{asked.where}, {asked.count:.3g} × a step",
        evidence=asked.evidence,
        cost_ns_per_step=asked.waited_ns,
        changes=asked.dropped,
        location=asked.place,
        fix="Remove the synchronisation; time phases with events of the device instead",
        confirm='pinchpoint bench ab -- "python train.py" "python train_fixed.py"',
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
