"""Many tiny copies from the host to the device.

## What it looks for
Dozens of host-to-device copies in a step, each of a few kilobytes at most. The number and the
recorded sizes are both needed: copies on the device, a handful of tensors of a batch, and large
copies (`pageable-h2d`, `offloaded-to-host`) are not meant.

## Why it matters
A copy costs the host about as much as a launch, and one from ordinary memory also a
synchronisation. The bytes do not matter; the number of calls does.

## How to fix it
Pack the pieces on the host and copy once, create constants on the device, and keep index tensors
there from step to step.

## When to ignore it
A handful of scalars a step.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.diagnosis.evidence.device_work import acts_behind
from pinchpoint.diagnosis.evidence.taken_apart import small_copies, without_copies
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import MemoryKind, Trace

RULE = Rule(needs=("device_ops", "api_calls"), record=CPU_AND_DEVICE, advice=NO_HINT)


def check(trace: Trace) -> Iterator[Found]:
    """Small copies to the device inside the steps."""
    ops, host = trace.device_ops, trace.host_ops
    if ops is None:
        return
    copies = small_copies(trace, (MemoryKind.PAGEABLE, MemoryKind.PINNED, MemoryKind.HOST))
    if copies is None:
        return
    around, _ = acts_behind(trace, copies.rows)
    spent = 0 if host is None else int(host["duration_ns"][around].sum())
    cost = round(per_step(trace, spent))
    yield Found(
        summary=(
            f"{copies.count:.0f} copies a step go to the device in pieces of"
            f" {np.median(ops['bytes'][copies.rows]):.0f} bytes"
        ),
        evidence=(Evidence("host time of these copies", cost, "ns per step"), *copies.evidence),
        cost_ns_per_step=cost,
        changes=without_copies(trace, copies),
        location=copies.place,
        fix="Pack the pieces and copy them once, or create them on the device",
        hint="torch.stack(parts).to(device)  # instead of [p.to(device) for p in parts]",
    )
