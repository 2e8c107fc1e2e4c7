"""The batch is too small to give the device work.

## What it looks for
Training steps of many short kernels, launched one by one, whose inputs have a first dimension of a
few items, and whose kernels have far fewer blocks than the device has multiprocessors. Small
batches of large items fill the device, and are not meant; a device that is busy for half of the
step neither. Where one module is called for item after item in a loop, the step trains on all of
these: that is `python-timestep-loop`. Where gradients are accumulated (they are added to those of
the step before, and no optimizer steps), filling it does not matter: each micro-step pays all
launches, and larger ones pay them less often. Without shapes and grid sizes this is not checked.

## Why it matters
Such a kernel takes as long as one with many times the items: most of the device has nothing to do,
and what the host spends on the launch is the same. The prediction is the time that the same items
take as part of a batch that fills the device; a step of such a batch takes about as long as a step
does now.

## How to fix it
A larger batch, with the learning rate adjusted to it. With accumulation, larger micro-batches and
fewer of them: the optimizer sees the same gradients. If memory forbids that, replay the step as a
CUDA graph; if the optimisation does, pack several runs into one process.

## When to ignore it
Where the algorithm needs small batches, or the device is capped in power.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.replay.merging import grows_ratio
from pinchpoint.analysis.replay.predict import corrected_step_ns
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.analysis.tables.kernels import blocks_of_device_ops
from pinchpoint.analysis.work.workload import workload
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES_OF_INPUTS
from pinchpoint.diagnosis.rule import NO_KNOB, NotChecked, Rule
from pinchpoint.diagnosis.rules.launches._many_launches import ManyLaunches, many_launches
from pinchpoint.trace import Trace

RULE = Rule(
    needs=("api_calls", "device_ops", "host_ops"),
    record=SHAPES_OF_INPUTS,
    parent="launch-bound",
    knobs=("batch_size",),
    advice=NO_KNOB,
    confirm="pinchpoint try --knob batch_size=x2 -- python train.py",
)

FEW_ITEMS = 8  # batches are rarely chosen below; gradients of so few items are mostly noise
FILLED_RATIO = 0.5  # of the multiprocessors, weighted by time; more leaves little to win
BUSY_RATIO = 0.5  # of the step; a device that is busy has work, whatever the batch is called
UNSURE_RATIO = 0.5  # short kernels take longer than their work does, large ones more or less


def check(trace: Trace) -> Iterator[Found]:
    """Training steps with a handful of items."""
    work, launches = workload(trace), many_launches(trace)
    if not work.trains or launches is None:
        return
    if not work.leading_dims:
        raise NotChecked("no products with recorded shapes")
    items, step = work.leading_dims[0], corrected_step_ns(trace)
    if items > FEW_ITEMS or step is None:
        return
    from pinchpoint.diagnosis.rules.launches._module_loop import module_loop

    if module_loop(trace) is not None and not work.accumulates:
        return
    filled = _filled_ratio(trace, launches)
    if filled is None:
        raise NotChecked("the recording has no grid sizes, or not the device's size")
    ops = trace.device_ops
    assert ops is not None
    device = per_step(trace, int(ops["duration_ns"][launches.rows].sum()))
    if (filled > FILLED_RATIO and not work.accumulates) or device > BUSY_RATIO * step:
        return
    full = device * filled  # what these items take of a device that is filled
    took = ops["duration_ns"][launches.rows] * grows_ratio(trace)[launches.rows]
    yield Found(
        summary=(
            (
                f"Gradients are accumulated over micro-steps of {_items(items)} and"
                f" {launches.count:.0f} launches"
                if work.accumulates
                else f"A step trains on {_items(items)}"
            )
            + f": kernels use {100 * filled:.0f} % of the multiprocessors, and the same work takes"
            f" {full / 1e6:.2g} ms as part of a batch that fills the device"
        ),
        evidence=(
            Evidence("items", items, "per step"),
            Evidence("multiprocessors in use, of all", round(filled, 3), "ratio"),
            *launches.evidence,
        ),
        cost_ns_per_step=round(step - full),
        saving_ns_per_step=(
            round(step - (1 + UNSURE_RATIO) * full),
            round(step - (1 - UNSURE_RATIO) * full),
        ),
        leaves_ns_per_step=round((1 - UNSURE_RATIO) * per_step(trace, float(took.sum()))),
        consequence="the gain is per item: a step keeps its length and does more",
        location=launches.place,
        fix=(
            "Make micro-batches larger and accumulate fewer of them"
            if work.accumulates
            else "Train on larger batches, until a step begins to take longer"
        ),
        hint=f"DataLoader(..., batch_size={max(64, 16 * items)})",
        confidence="medium",
    )


def _items(count: int) -> str:
    return f"{count} item" if count == 1 else f"{count} items"


def _filled_ratio(trace: Trace, launches: ManyLaunches) -> float | None:
    """Share of the multiprocessors that have a block, weighted by time."""
    units = trace.devices[0].multiprocessors if trace.devices else None
    ops, blocks = trace.device_ops, blocks_of_device_ops(trace)[launches.rows]
    if not units or ops is None or not blocks.any():
        return None
    took = ops["duration_ns"][launches.rows][blocks > 0]
    used = np.minimum(blocks[blocks > 0] / units, 1.0)
    return float((used * took).sum() / max(int(took.sum()), 1))
