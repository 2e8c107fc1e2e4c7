"""Tensors are cast to a wider type and back.

## What it looks for
Runs of large elementwise kernels in which a cast to a wider type is followed by one back, with
nothing but elementwise work between. Casts for a product, a normalisation, a softmax or a loss,
as autocast makes them, are none; nor are casts one way only, and those that are small against the
step. Not checked without shapes and types.

## Why it matters
Each cast reads and writes the whole tensor, and what lies between moves twice the bytes. Such work
is bound by memory, so it takes more than twice as long as in the narrow type.

## How to fix it
Remove the `.float()` and `.to(x.dtype)` around activations and gates: elementwise kernels compute
in float32 inside anyway. Where a library insists on float32, look at its autocast rules, or let a
compiler fuse casts and arithmetic into one kernel.

## When to ignore it
Where intermediate results need the wide type, as in sums over many elements.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.replay import DropDeviceOps, ScaleDeviceOps
from pinchpoint.analysis.work.pointwise_chains import PointwiseChains, pointwise_chains
from pinchpoint.diagnosis.evidence.device_work import device_time_per_step, device_work
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import SHAPES_AND_TYPES
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops", "host_ops"),
    record=SHAPES_AND_TYPES,
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "python train.py" "python train_one_type.py"',
)

LEAST_CAST_RATIO = 0.1  # of the device's time; a network under autocast spends 5 % on such casts
HALF_THE_BYTES = 0.5  # of what is bound by memory: 16 bits in place of 32


def check(trace: Trace) -> Iterator[Found | Small]:
    """Chains with casts there and back."""
    ops, host = trace.device_ops, trace.host_ops
    if ops is None or host is None or not host.known("shapes").any():
        raise NotChecked("the recording has no shapes and types of inputs")
    chains = pointwise_chains(trace)
    there_and_back = chains.round_trips[chains.chain]
    casts = chains.rows[there_and_back & (chains.widens | chains.narrows)]
    wanted = np.zeros(len(ops), np.bool_)
    wanted[casts] = True
    work = device_work(trace, wanted, "casts there and back")
    if work is None:
        return
    if (share := work.ns_per_step / device_time_per_step(trace)) < LEAST_CAST_RATIO:
        yield Small(share, LEAST_CAST_RATIO, "the device's time")
        return
    wide = chains.rows[there_and_back & _in_wide_type(chains)]
    wanted[:] = False
    wanted[wide] = True
    between = device_work(trace, wanted, "work in the wide type between them")
    slower = between.ns_per_step if between else 0
    yield Found(
        summary=(
            f"{work.count:.0f} casts a step take tensors to a wider type and back around"
            f" elementwise work, {duration(work.ns_per_step)} of each recorded step"
        ),
        evidence=(
            *work.evidence,
            Evidence("work in the wide type between them", slower, "ns per step"),
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=(
            DropDeviceOps(casts),
            ScaleDeviceOps(wide, HALF_THE_BYTES, bytes_left=HALF_THE_BYTES),
        ),
        location=work.place,
        fix="Keep activations in one type: elementwise kernels compute in float32 inside anyway",
        hint="y = F.silu(x)  # in place of F.silu(x.float()).to(x.dtype)",
    )


def _in_wide_type(chains: PointwiseChains) -> np.ndarray:
    """Kernels that are no casts, and whose tensors are as wide as the widest of their chain."""
    widest = np.zeros(len(chains), np.int64)
    np.maximum.at(widest, chains.chain, chains.tensor_bytes)
    wide: np.ndarray = chains.tensor_bytes == widest[chains.chain]
    return wide & ~(chains.widens | chains.narrows)
