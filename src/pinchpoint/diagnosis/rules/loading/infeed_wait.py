"""The compiled program waits for input from the host, or for the host to take its output.

## What it looks for
Operations `infeed`, `outfeed`, `recv-done` and `send-done` of a program that XLA compiled, on a
device, as the recording names them. They take a moment where the data is there; what they take
beyond is waiting for the host. Copies that a program makes beside its computing, and programs that
are started late with their data at hand, have no such operation, and are not meant.

## Why it matters
A compiled program runs without the host but at these places. While it waits there it computes
nothing, on this device and on all that it is connected to by collectives.

## How to fix it
Have the next batch ready on the device before the step that needs it: prefetch two batches ahead
(`jax.device_put` a step early, `tf.data` with `prefetch` and parallel maps), or read the input in
more processes. Take results out every N steps instead of every step.

## When to ignore it
The first step of a recording: its input was not asked for in time.
"""

import re
from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.steps.in_steps import judged_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.regex import regex
from pinchpoint.trace import Table, Trace
from pinchpoint.trace import intervals as iv
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("device_ops",), record=CPU_AND_DEVICE, advice=NO_HINT)

_IN = regex(r"^(infeed|recv(-done)?)[.\d]*$")
_OUT = regex(r"^(outfeed|send-done)[.\d]*$")
# fitted to nothing: what is there is taken in some microseconds, and how much of a wait a fix wins
# depends on the host, which a TPU's recording does not show.
LEAST_WON_RATIO = 0.5


def check(trace: Trace) -> Iterator[Found]:
    """Waits of compiled programs for the host, in the judged steps."""
    ops = trace.compiled_ops
    if ops is None or steps(trace).how == "none":
        return
    for pattern, what, fix in (
        (_IN, "input from the host", "Prefetch batches to the device, and read them in parallel"),
        (_OUT, "the host to take its output", "Take results out every 50 steps"),
    ):
        rows = _named(trace, ops, pattern)
        waited = round(per_step(trace, _total_ns(trace, ops, rows)))
        if not waited:
            continue
        names = sorted({trace.names[n] for n in ops["op"][rows].tolist()})
        yield Found(
            summary=f"The compiled program waits {duration(waited)} a step for {what}",
            evidence=(
                Evidence("waiting", waited, "ns per step"),
                Evidence("operations", ", ".join(names[:3]), "words"),
                Evidence("times", round(per_step(trace, float(rows.sum())), 2), "per step"),
            ),
            cost_ns_per_step=waited,
            saving_ns_per_step=(round(LEAST_WON_RATIO * waited), waited),
            fix=fix,
            confirm="record again after the fix: pinchpoint diagnose RECORDING",
            confidence="medium",
        )


def _named(trace: Trace, ops: Table, pattern: re.Pattern[str]) -> Mask:
    """Operations of devices with such names."""
    wanted = [
        number for number in np.unique(ops["op"]).tolist() if pattern.match(trace.names[number])
    ]
    mask: Mask = np.isin(ops["op"], wanted) & ops.known("device")
    return mask


def _total_ns(trace: Trace, ops: Table, rows: Mask) -> float:
    """Of the device that waits longest, inside the judged steps."""
    inside = rows & (judged_steps(trace).step_of(ops["start_ns"]) >= 0)
    totals = [
        iv.flatten(ops["start_ns"][mine], ops.end_ns[mine]).total
        for device in np.unique(ops["device"][inside]).tolist()
        if (mine := inside & (ops["device"] == device)).any()
    ]
    return float(max(totals, default=0))
