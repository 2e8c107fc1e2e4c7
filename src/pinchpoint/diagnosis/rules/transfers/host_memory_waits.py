"""A compiled program waits for copies between the device's memory and the host's.

## What it looks for
Copies that are operations of a program which XLA compiled, between device memory and host memory
(space `S(5)` of XLA's layouts: parameters, optimizer state or activations that are offloaded), and
that the program waits for: a `copy-done`, or a copy that is not split in two, takes time on the
device's one line of operations, while nothing else runs there.

## Why it matters
The link to the host moves 15 to 60 GB/s, a TPU's memory 0.8 to 7 TB/s. XLA begins such copies early
and hides what it can behind computing; what is left as waiting did not fit behind it.

## How to fix it
Keep on the device what fits: offload fewer layers or names (`save_and_offload_only_these_names`),
a smaller data type, more devices to shard over. Compute more for each byte that is copied (a larger
batch). Where the computing is long enough to hide the copies, let them begin earlier: raise XLA's
limits of copies under way and of memory for them.

## When to ignore it
Where the program does not fit any other way, and the copies run at the rate of the link.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.steps.in_steps import judged_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.round_trips import copies_between
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import Table, Trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("device_ops",), record=CPU_AND_DEVICE, advice=NO_HINT)

# fitted to nothing: data that stays on the device ends the waiting, half of it stands for a part.
LEAST_WON_RATIO = 0.5


def check(trace: Trace) -> Iterator[Found]:
    """Waits for copies inside compiled programs, in the judged steps, of the device that waits
    longest."""
    ops = trace.device_ops
    if ops is None or trace.compiled_ops is None or not len(trace.compiled_ops):
        return
    down, up = (_of_programs(trace, ops, to_host=to_host) for to_host in (True, False))
    if not (down | up).any():
        return
    if steps(trace).how == "none":
        raise NotChecked("no steps were found")
    from pinchpoint.diagnosis.evidence.alone import alone_ns

    device = max(
        np.unique(ops["device"][down | up]).tolist(), key=lambda d: alone_ns(ops, down | up, d)
    )
    mine = ops["device"] == device
    waited = round(per_step(trace, alone_ns(ops, down | up, device)))
    moved = {
        to_host: per_step(trace, _bytes(ops, rows & mine))
        for to_host, rows in ((True, down), (False, up))
    }
    if not waited:
        return
    yield Found(
        summary=(
            f"The compiled program waits {duration(waited)} a step for copies between the memory"
            f" of the device and of the host: {moved[False] / 1e9:.3g} GB a step come from the"
            f" host, {moved[True] / 1e9:.3g} GB go to it"
        ),
        evidence=(
            Evidence("waiting", waited, "ns per step"),
            Evidence(
                "of that for copies to the host",
                round(per_step(trace, alone_ns(ops, down, device))),
                "ns per step",
            ),
            Evidence("copied to the device", round(moved[False]), "bytes per step"),
            Evidence("copied to the host", round(moved[True]), "bytes per step"),
        ),
        cost_ns_per_step=waited,
        saving_ns_per_step=(round(LEAST_WON_RATIO * waited), waited),
        fix="Keep on the device what fits: offload less, in a smaller type or over more devices;"
        " or compute more for each byte that is copied",
        confirm="record again after the fix: pinchpoint diagnose RECORDING",
        confidence="medium",
    )


def _of_programs(trace: Trace, ops: Table, *, to_host: bool) -> Mask:
    """Copies of the judged steps that no call of the host started: the program itself did."""
    inside = judged_steps(trace).step_of(ops["start_ns"]) >= 0
    rows: Mask = copies_between(trace, to_host=to_host) & inside & ~ops.known("api_call")
    return rows


def _bytes(ops: Table, rows: Mask) -> int:
    return int(ops.filled("bytes", 0)[rows].astype(np.int64).sum())
