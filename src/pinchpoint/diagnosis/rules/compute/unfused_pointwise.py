"""Elementwise operations pass over large tensors one after the other.

## What it looks for
Runs of three and more elementwise kernels on tensors of one size, of more than one operator, each
large enough to be bound by the memory's bandwidth and running near it, with nothing else between
them. Runs with casts there and back belong to dtype-thrash, those of an optimizer to
unfused-optimizer, slow ones to non-contiguous-access; a loop over one operator measures it. Where
fused kernels of a compiler run in the same steps, the program is compiled already, and what is left
over is compile-fell-back or graph-breaks. Where chains are found, functions beside them that pass
over memory three times as often as they need count too: the same compiler fuses their reductions.
Not checked without shapes, nor where most of it is differentiated twice (`create_graph=True` and a
backward through that): what `torch.compile` made has no gradient of its gradient.

## Why it matters
Each kernel reads its inputs from memory and writes its result there, only for the next one to read
it again. One fused kernel reads the inputs once and writes the last result; the arithmetic costs
nothing.

## How to fix it
`torch.compile` on the function or the model; or the library's fused operation, where there is one
(`F.gelu`, `F.rms_norm`, `F.layer_norm`, fused rotary embeddings).

## When to ignore it
Where shapes change all the time and compiling would cost more than it wins.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.causal.passes import Row
from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.analysis.work.differentiated_twice import differentiated_twice
from pinchpoint.analysis.work.pointwise_chains import PointwiseChains, pointwise_chains
from pinchpoint.diagnosis.evidence.attainable import Attainable, attainable
from pinchpoint.diagnosis.evidence.device_work import device_time_per_step, device_work
from pinchpoint.diagnosis.evidence.functions import FarFunction, far_functions, share_of_step
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import SHAPES_AND_TYPES, Record
from pinchpoint.diagnosis.rule import NO_KNOB, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.durations import duration
from pinchpoint.trace.names import rows_named

RULE = Rule(
    needs=("device_ops", "host_ops"),
    record=SHAPES_AND_TYPES,
    knobs=("compile",),
    advice=NO_KNOB,
    confirm="pinchpoint try --knob compile -- python train.py",
)

SHORTEST_CHAIN = 3  # of two kernels, fusing saves less than a third, and compilers often leave them
LEAST_RATIO = 0.1  # of the device's time in such chains; less does not pay for a compiler
LEAST_TOO_RATIO = 0.05  # of the step, in one function: as for operators that another way avoids
# Second operands that come from outside a chain. A written-out GELU has none in eight kernels, a
# gate or a residual connection one; fused by torch.compile they then take what is predicted.
OUTSIDE_TENSORS = 1
# Of a function's row of passes, outside of chains: less is a copy or a bias at its edge.
BESIDE_RATIO = 0.2
NEAR_PEAK_RATIO = 0.5  # of the memory's bandwidth; slower kernels have another problem


def check(trace: Trace) -> Iterator[Found | Small]:
    """Chains that one kernel could do."""
    ops, host = trace.device_ops, trace.host_ops
    if ops is None or host is None or not host.known("shapes").any():
        raise NotChecked("the recording has no shapes and types of inputs")
    if (rows_named(trace, ops, _by_compiler) & device_ops_in_steps(trace)).any():
        return
    chains = pointwise_chains(trace)
    chosen, twice = _worth_fusing(trace, chains), _twice(trace, chains)
    wanted = _rows(trace, chains, chosen & ~twice)
    work = device_work(trace, wanted, "elementwise kernels in chains")
    device_ns = device_time_per_step(trace)
    least_ns = LEAST_RATIO * device_ns
    if work is None or work.ns_per_step < least_ns:
        every = device_work(trace, _rows(trace, chains, chosen), "elementwise kernels in chains")
        if every is not None and every.ns_per_step >= least_ns:
            raise NotChecked(_WHY_NOT, _WITHOUT)
        if work is not None:
            yield Small(work.ns_per_step / device_ns, LEAST_RATIO, "the device's time")
        return
    chosen = chosen & ~twice
    took = ops["duration_ns"].astype(np.int64)
    longest = int((chains.count(chains.chain >= 0) * chosen).max())
    too = _passes_too(trace, wanted)
    alone = work.rows[~_of(trace, too)[work.rows]]
    beside = [round(per_step(trace, int(took[_of(trace, [f]) & ~wanted].sum()))) for f in too]
    cost_ns = work.ns_per_step + sum(beside)
    before = chains.total(chains.bytes)[chosen].sum()
    fewer = float(_fused_bytes(chains)[chosen].sum() / before)
    yield Found(
        summary=(
            f"{work.count:.0f} elementwise kernels a step pass over large tensors one after the"
            f" other, up to {longest} in a row, {duration(work.ns_per_step)} of each recorded step"
            + (f"; {duration(cost_ns)} with other passes in {_names(too)}" if too else "")
        ),
        evidence=(
            *work.evidence,
            Evidence("longest chain", longest, "kernels"),
            *(
                Evidence(f"beside them, passes in {one.name}", ns, "ns per step")
                for one, ns in zip(too, beside, strict=True)
            ),
        ),
        cost_ns_per_step=cost_ns,
        changes=(
            ScaleDeviceOps(alone, fewer, bytes_left=fewer),
            *(change for one in too for change in one.changes),
        ),
        location=work.place,
        fix="Let a compiler fuse them, or use the library's fused operation",
        hint="model = torch.compile(model)",
    )


_WHY_NOT = (
    "most of its chains are differentiated twice, and what torch.compile makes has no gradient of"
    " its gradient"
)
# Measured on one such program: 97.9 ms became 133 (forward over reverse, compiled as a whole).
_WITHOUT = Record("a trial of gradients by torch.func in one compiled function: it may be slower")


def _rows(trace: Trace, chains: PointwiseChains, chosen: NDArray[np.bool_]) -> Mask:
    wanted = np.zeros(len(trace.device_ops or ()), np.bool_)
    wanted[chains.rows[chosen[chains.chain]]] = True
    return wanted


def _twice(trace: Trace, chains: PointwiseChains) -> NDArray[np.bool_]:
    """Chains of which half or more belongs to gradients of gradients."""
    ops, twice = trace.device_ops, np.append(differentiated_twice(trace), False)
    assert ops is not None
    took = ops["duration_ns"][chains.rows].astype(np.int64)
    of = twice[ops.filled("host_op", len(twice) - 1)[chains.rows]]
    found: NDArray[np.bool_] = 2 * chains.total(np.where(of, took, 0)) >= chains.total(took)
    return found if len(twice) > 1 else np.zeros(len(chains), np.bool_)


def _passes_too(trace: Trace, wanted: Mask) -> list[FarFunction]:
    """Functions with reductions between such chains, or without chains, which the same compiler
    fuses: a normalisation that is written out, say. What it needs as a whole is less than what its
    chains do, one by one."""
    assert trace.device_ops is not None
    took = trace.device_ops["duration_ns"]

    def goes_on(row: Row) -> bool:
        beside = row.rows[~wanted[row.rows]]
        return row.turns == 1 and int(took[beside].sum()) >= BESIDE_RATIO * row.took_ns

    try:
        far = far_functions(trace, goes_on)
        return [one for one in far if share_of_step(trace, one.saving_ns) >= LEAST_TOO_RATIO]
    except NotChecked:
        return []


def _names(functions: list[FarFunction]) -> str:
    return " and ".join(one.name for one in functions)


def _of(trace: Trace, functions: list[FarFunction]) -> Mask:
    mine = np.zeros(len(trace.device_ops or ()), np.bool_)
    for row in (row for one in functions for row in one.rows):
        mine[row.rows] = True
    return mine


def _by_compiler(name: str) -> bool:
    return name.startswith(("triton_poi", "triton_red", "triton_per"))


def _worth_fusing(trace: Trace, chains: PointwiseChains) -> NDArray[np.bool_]:
    assert trace.device_ops is not None
    every = np.ones(len(chains.rows), np.bool_)
    took = chains.total(trace.device_ops["duration_ns"][chains.rows])
    long = chains.count(every) >= SHORTEST_CHAIN
    chosen: NDArray[np.bool_] = long & chains.mixed & ~chains.round_trips
    well = attainable(trace)
    return chosen & (chains.total(chains.bytes) >= took * _near_peak(well))


def _near_peak(well: Attainable | None) -> float:
    """Bytes in a nanosecond; 0 where the bandwidth is not known."""
    rate = well.spec.memory_bytes_per_s if well else None
    return (rate or 0.0) * NEAR_PEAK_RATIO * 1e-9


def _fused_bytes(chains: PointwiseChains) -> NDArray[np.int64]:
    """What each chain moves as one kernel: what its first kernel does, and one more tensor.

    No result but the last is written. Which second operands of later kernels are results or
    inputs of the chain itself is not recorded: all but one at most are taken to be.
    At least one tensor is read and one written.
    """
    every = np.ones(len(chains.rows), np.bool_)
    tensor = chains.total(chains.tensor_bytes) // np.maximum(chains.count(every), 1)
    first = chains.bytes[np.unique(chains.chain, return_index=True)[1]]
    outside = chains.total(chains.bytes) - first - 2 * tensor * (chains.count(every) - 1)
    added = np.clip(outside, 0, OUTSIDE_TENSORS * tensor)
    fused: NDArray[np.int64] = np.maximum(first + added, 2 * tensor)
    return np.minimum(fused, chains.total(chains.bytes))
