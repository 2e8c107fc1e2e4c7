"""Activations are computed twice although memory is free.

## What it looks for
Operators of the forward pass that run again inside the backward pass (activation checkpointing),
while the peak of the device's memory stays below half of what the device has.

Where the recording has no memory, shapes bound it: what the repeated operators read, weights
included, with sixteen bytes for each number that the optimizer updates, is at least what keeping
would take. Where that is more than half of the device's memory, or unknown, it is not checked. A
second derivative also runs forward operators inside backward; so only those count whose operator
and inputs the forward pass has as well.

## Why it matters
Checkpointing trades time for memory: a quarter to a third of the step goes into doing the forward
pass again. That is a good trade only where memory is short.

## How to fix it
Switch checkpointing off, or leave it on for a few layers only; or use the memory for a larger
batch.

## When to ignore it
Where the memory is kept free on purpose, for longer sequences or another process.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.attribution import recomputed_rows
from pinchpoint.analysis.host.input_arguments import elements
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.diagnosis.evidence.device_work import device_work, without_work
from pinchpoint.diagnosis.evidence.host_spans import outermost
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import Need, Record
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops", "host_ops"),
    record=Record(
        "memory as well: profile_memory=True", Need.PROFILE_MEMORY, Record("memory as well")
    ),
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "python train.py" "python train_no_checkpointing.py"',
)

STATE_BYTES = 16  # parameter, gradient and two moments in float32
MEMORY_FREE_RATIO = 0.5  # of the device's memory in use at the peak; kept activations need room


def check(trace: Trace) -> Iterator[Found]:
    """Forward work inside backward, where memory would allow to keep its results."""
    again = recomputed_rows(trace)
    launched = _launched_by(trace, again)
    work = device_work(
        trace, launched & _in_forward(trace, launched), "the forward pass done again"
    )
    if work is None:
        return
    used, what = _peak_ratio(trace), "memory in use at the peak"
    if used is None:
        used, what = _kept_ratio(trace, again), "what keeping the activations takes, at most"
        used = used if used is not None and used <= MEMORY_FREE_RATIO else None
    if used is None:
        raise NotChecked("layers are computed again, but whether memory is short is not recorded")
    if used > MEMORY_FREE_RATIO:
        return
    yield Found(
        summary=(
            f"{work.count:.0f} kernels a step do the forward pass again in backward,"
            f" {duration(work.ns_per_step)}"
            f" of each recorded step; {what}: {100 * used:.0f} % of the"
            " device's"
        ),
        evidence=(*work.evidence, Evidence(what, round(used, 3), "ratio")),
        cost_ns_per_step=work.ns_per_step,
        changes=(
            *without_work(trace, work.rows),
            ScaleHostSpans(np.flatnonzero(outermost(trace, again)), 0.0),
        ),
        location=work.place,
        fix="Switch activation checkpointing off, or leave it on for a few layers",
        hint="model.gradient_checkpointing_disable()",
    )


def _launched_by(trace: Trace, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.append(rows, False)[launched_calls(trace).operator]
    return found


def _in_forward(trace: Trace, again: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Device operations whose operator ran with the same inputs without being done again."""
    kind = launched_calls(trace).which
    found: NDArray[np.bool_] = (np.bincount(kind, ~again) > 0)[kind]
    return found


def _peak_ratio(trace: Trace) -> float | None:
    """The most memory that the process reserved, of the device's; None where not recorded."""
    blocks = trace.allocations
    sizes = {d.number: d.memory_bytes for d in trace.devices if d.memory_bytes}
    if blocks is None or not len(blocks):
        return None
    total = np.maximum(blocks.filled("reserved_bytes", 0), blocks.filled("allocated_bytes", 0))
    ratios = [
        int(total[blocks.filled("device", -1) == number].max(initial=0)) / size
        for number, size in sizes.items()
    ]
    return max(ratios, default=0.0) or None


def _kept_ratio(trace: Trace, again: NDArray[np.bool_]) -> float | None:
    """Bytes that the repeated operators of a step read, and the training state, of the device's
    memory: no less than what keeping takes. None where shapes or the device are not known."""
    host, sizes = trace.host_ops, [d.memory_bytes for d in trace.devices if d.memory_bytes]
    if host is None or not sizes or not host.known("shapes").any():
        return None
    calls = launched_calls(trace)
    mine = np.flatnonzero(device_ops_in_steps(trace) & (calls.operator < len(host)))
    first = mine[np.unique(calls.operator[mine], return_index=True)[1]]  # one row an operator
    read = np.nan_to_num(calls.numbers(_read_bytes)[first]) * again[calls.operator[first]]
    state = np.nan_to_num(calls.numbers(_state_bytes)[first])
    return per_step(trace, round(float(read.sum() + state.sum()))) / min(sizes)


def _read_bytes(of: LaunchedCall) -> float:
    return float(sum(of.call.bytes(i) for i in of.call.tensors()))


def _state_bytes(of: LaunchedCall) -> float:
    if not of.call.name.startswith(
        ("aten::_fused_", "aten::_foreach_addcdiv", "aten::_foreach_add_")
    ):
        return 0.0
    return float(STATE_BYTES * sum(elements(s) for s in of.call.shape_list(0) or ()))
