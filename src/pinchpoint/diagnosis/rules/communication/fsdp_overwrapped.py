"""Parameters are sharded in too many small units.

## What it looks for
Dozens of all-gathers in a step, each too small for the link, as a wrapping policy makes that wraps
every layer by itself. The count and the sizes are both needed: a dozen gathers a pass are usual,
and large ones fill the link. Not checked where message sizes were not recorded.

## Why it matters
Each unit gathers before its forward and again before its backward. Small units are bound by latency
and by the host, and cannot be prefetched far enough to hide.

## How to fix it
Wrap per block (one transformer block a unit), not per layer.

## When to ignore it
Where a unit is already a whole block of a small model.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.device.collectives import collectives
from pinchpoint.analysis.host.frames import acts
from pinchpoint.analysis.replay import ReduceLaunches, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import About, NotChecked, Rule
from pinchpoint.trace import Trace

RULE = Rule(
    needs=("device_ops", "api_calls"),
    record=CPU_AND_DEVICE,
    about=About.COMMUNICATION,
    parent="small-collectives",
    confirm='pinchpoint bench ab -- "torchrun train.py" "torchrun train_fixed.py"',
)

# A step; a dozen blocks, wrapped whole, gather twice each: forward and backward.
FEWEST_GATHERS = 32
SMALL_BYTES = 8 << 20  # an all-gather of this size takes as long as its latency and launch
LAYERS_IN_A_BLOCK = 6  # linear layers and norms of a transformer block


def check(trace: Trace) -> Iterator[Found]:
    """Steps with many small all-gathers."""
    found, ops = collectives(trace), trace.device_ops
    if found is None or ops is None:
        return
    if per_step(trace, len(found.rows)) >= FEWEST_GATHERS and not found.bytes.any():
        raise NotChecked("message sizes are not recorded")
    kinds = {i for i, n in enumerate(trace.names) if "gather" in n.lower()}
    gathers = np.isin(ops.filled("collective", -1)[found.rows], list(kinds))
    gathers |= np.isin(ops["name"][found.rows], list(kinds))
    gathers &= (found.bytes > 0) & (found.bytes <= SMALL_BYTES)
    wanted = np.zeros(len(ops), np.bool_)
    wanted[found.rows[gathers]] = True
    work = device_work(trace, wanted, "small all-gathers")
    if work is None or work.count < FEWEST_GATHERS:
        return
    nowhere = 0 if trace.host_ops is None else len(trace.host_ops)
    around = acts(trace, ops.filled("host_op", nowhere)[work.rows].astype(np.intp))
    median = float(np.median(found.bytes[gathers]))
    yield Found(
        summary=f"{work.count:.0f} all-gathers a step of {median / 2**20:.1f} MiB each",
        evidence=(Evidence("median message", round(median), "bytes"), *work.evidence),
        cost_ns_per_step=work.ns_per_step,
        changes=(
            ScaleHostSpans(around, 1 / LAYERS_IN_A_BLOCK),
            ReduceLaunches(work.rows, 1 / LAYERS_IN_A_BLOCK),
        ),
        location=work.place,
        fix="Wrap whole blocks, not single layers",
        hint="fully_shard(block)  # for each transformer block",
    )
