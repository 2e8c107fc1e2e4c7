"""Deterministic algorithms are on: additions by index are sorted and done one after the other.

## What it looks for
`index_add_`, `scatter_add_`, `scatter_reduce_`, `index_copy_` or `put_` that call `index_put_`
inside, with its sort and its kernel that walks through equal indices. PyTorch takes that way only
under `torch.use_deterministic_algorithms(True)`; without it, these operators are one kernel of
atomic additions. A program that calls `index_put_` itself is another matter
(index-backward-duplicates). Not checked without operators; without shapes or on an unknown device
the gain is not predicted.

## Why it matters
Each call sorts its indices and reads them back in order, and where many are equal they are added
serially. The mode also fills fresh buffers, and picks slower kernels elsewhere.

## How to fix it
`torch.use_deterministic_algorithms(False)` for training; keep the mode for tests that compare
results bit by bit. Seeds do not need it.

## When to ignore it
Where results must be equal to the last bit.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.replay import Change, DropDeviceOps, ScaleDeviceOps
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.diagnosis.evidence.attainable import attainable
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.host_spans import named
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES_OF_INPUTS
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Mask, Rows
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("device_ops", "host_ops"), record=SHAPES_OF_INPUTS, advice=NO_HINT)

_ATOMIC_OTHERWISE = (
    "aten::index_add_",
    "aten::index_add",
    "aten::scatter_add_",
    "aten::scatter_add",
    "aten::scatter_reduce_",
    "aten::index_copy_",
    "aten::put_",
)


def check(trace: Trace) -> Iterator[Found]:
    """Sorted additions inside operators that add by atomics otherwise."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None:
        return
    work = device_work(trace, _inside(trace), "sorted additions by index")
    if work is None:
        return
    yield Found(
        summary=(
            "Deterministic algorithms are on: additions by index are sorted and done in order,"
            f" {work.count:.0f} kernels and {duration(work.ns_per_step)} of each recorded step"
        ),
        evidence=(*work.evidence, Evidence("operator that sorts", "aten::index_put_", "")),
        cost_ns_per_step=work.ns_per_step,
        changes=tuple(_by_atomics(trace, work.rows)),
        location=work.place,
        fix="Switch deterministic algorithms off where results need not be equal bit by bit",
        hint="torch.use_deterministic_algorithms(False)",
    )


def _inside(trace: Trace) -> Mask:
    """Device operations of operators that call ``index_put_`` and would not without the mode."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    chain = parents(host)
    outer = named(trace, lambda name: name in _ATOMIC_OTHERWISE)
    around = np.append(nearest(chain, outer), len(host))
    from pinchpoint.diagnosis.rules.compute._scattered_adds import SORTED

    sorting = around[np.flatnonzero(named(trace, lambda name: name in SORTED))]
    sorts = np.zeros(len(host) + 1, np.bool_)
    sorts[sorting] = True
    sorts[len(host)] = False
    found: Mask = sorts[around[ops.filled("host_op", len(host))]]
    return found


def _by_atomics(trace: Trace, rows: Rows) -> Iterator[Change]:
    """One kernel for each call, as long as its additions take; the rest is dropped."""
    ops, calls, well = trace.device_ops, launched_calls(trace), attainable(trace)
    if well is None or ops is None:
        return
    from pinchpoint.diagnosis.rules.compute._scattered_adds import adds_ns

    wanted = calls.numbers(partial(adds_ns, well))[rows]
    order = np.lexsort((-ops["duration_ns"][rows], calls.operator[rows]))
    first = np.append(True, np.diff(calls.operator[rows][order]) != 0)
    longest = np.zeros(len(rows), np.bool_)
    longest[order[first]] = True
    kept = longest & ~np.isnan(wanted)
    if not kept.any():
        return
    took = ops["duration_ns"][rows[kept]].astype(np.float64)
    yield ScaleDeviceOps(rows[kept], np.minimum(wanted[kept] / np.maximum(took, 1.0), 1.0))
    yield DropDeviceOps(rows[~kept])
