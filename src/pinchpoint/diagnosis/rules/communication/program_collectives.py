"""A compiled program waits for its collectives while nothing is computed.

## What it looks for
Collectives that are operations of a program which XLA compiled (`all-reduce`, `all-gather`,
`reduce-scatter`, `all-to-all`, `collective-permute`, and the `-done` of those that run beside the
computing), and what they take while their device runs nothing else. A TPU runs one operation at a
time. Started and finished in two operations (`-start`, `-done`), a collective takes only what its
`-done` waits for. Collectives that the host launches one by one have rules of their own.

## Why it matters
All devices of the program wait at each of them for the slowest. On more devices the computing gets
shorter and the collectives do not.

## How to fix it
Let XLA run them beside the computing (its latency hiding scheduler, asynchronous collectives,
collective matrix products); shard so that less is exchanged: weights gathered once a layer and not
once an operation, gradients reduced once a step and in bfloat16; more work for each device.
Where one device arrives late each time, mend that device's input or load.

## When to ignore it
Where the links run at their rate and the model does not fit on fewer devices.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.steps.in_steps import judged_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, About, NotChecked, Rule
from pinchpoint.trace import DeviceKind, Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("device_ops",), record=CPU_AND_DEVICE, about=About.COMMUNICATION, advice=NO_HINT)

# As of comm-not-overlapped, where it was measured on GPUs: what overlap wins of what is exposed.
LEAST_WON_RATIO, MOST_WON_RATIO = 0.08, 0.6
UNEVEN_RATIO = 1.5  # one device in collectives so much longer than another: it waits for that one


def check(trace: Trace) -> Iterator[Found]:
    """Time of the judged steps in collectives of compiled programs."""
    ops, compiled = trace.device_ops, trace.compiled_ops
    if ops is None or compiled is None or not len(compiled) or len(trace.api_calls or ()):
        return
    mine = (ops["kind"] == DeviceKind.COLLECTIVE) & ~ops.known("api_call")
    if not mine.any():
        return
    if steps(trace).how == "none":
        raise NotChecked("no steps were found")
    mine &= judged_steps(trace).step_of(ops["start_ns"]) >= 0
    from pinchpoint.diagnosis.evidence.alone import alone_ns

    took = {
        d: per_step(trace, alone_ns(ops, mine, d)) for d in np.unique(ops["device"][mine]).tolist()
    }
    waited = round(float(np.median(list(took.values())))) if took else 0
    if not waited:
        return
    kinds = np.bincount(ops["name"][mine], ops["duration_ns"][mine])
    named = [trace.names[n] for n in np.argsort(-kinds)[:3].tolist() if kinds[n]]
    late = _late(took)
    yield Found(
        summary=(
            f"Collectives of the compiled program take {duration(waited)} a step, and nothing is"
            f" computed meanwhile{late}"
        ),
        evidence=(
            Evidence("in collectives", waited, "ns per step"),
            Evidence("operations", ", ".join(named), "words"),
            Evidence("runs", round(per_step(trace, int(mine.sum())) / len(took), 2), "per step"),
            *(Evidence(f"device {d}", round(ns), "ns per step") for d, ns in took.items()),
        ),
        cost_ns_per_step=waited,
        saving_ns_per_step=(round(LEAST_WON_RATIO * waited), round(MOST_WON_RATIO * waited)),
        fix="Let them run beside the computing, or exchange less: XLA's latency hiding scheduler,"
        " another sharding, gradients in bfloat16",
        confirm="record again after the fix: pinchpoint diagnose RECORDING",
        confidence="medium",
    )


def _late(took: dict[int, float]) -> str:
    """Whom the others wait for: who spends least in collectives, where that is much less."""
    least, most = min(took, key=lambda d: took[d]), max(took.values())
    return f"; the others wait for device {least}" if most > UNEVEN_RATIO * took[least] else ""
