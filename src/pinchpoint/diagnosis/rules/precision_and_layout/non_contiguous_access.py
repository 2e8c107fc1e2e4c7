"""Kernels read or write memory across its grain.

## What it looks for
Elementwise and copy kernels on large tensors that reach less than half of the memory's bandwidth,
and whose operands do not lie in memory in one order: the strides of the operator's inputs say that
neighbours in one operand are far apart in another (a transposed or permuted view, a slice with
steps). And lookups (`table[index]`, `index_select`) of rows whose elements are apart in memory, as
in a transposed table, that take twice what whole rows would.

Where no step turns dimensions (`permute`, `transpose`, `movedim`), the tensor came to the steps in
that order, as a state that was saved in another one: then the line that turns them is shown, if the
program has one such line.

Left out is what an operator does within itself to tensors that it got in row-major order. Both are
needed: strides alone cost nothing where the cache holds the tensor, and a low rate alone
has other causes (few blocks, broadcasts, atomics). Not checked without strides, or on a device
whose memory bandwidth is not known.

## Why it matters
Memory is moved in pieces of 32 bytes. Where a kernel uses 4 of them and fetches the rest again
later, or where it cannot use wide loads, it takes several times as long as on dense operands.

## How to fix it
Produce the tensor in the layout that is needed, or make it dense once (`.contiguous()`) if it is
used more than once. Keep both operands of an operation in the same layout.

## When to ignore it
A single transposing copy whose result serves many kernels. Lookups in a table that is also used
the other way round: then keep both.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.costs import cost_of
from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.host.ancestry import above, parents
from pinchpoint.analysis.host.input_arguments import Shape
from pinchpoint.analysis.replay import Change, ScaleDeviceOps
from pinchpoint.analysis.steps.in_steps import rows_in_steps
from pinchpoint.analysis.work.pointwise_chains import (
    LaunchedCall,
    distinct_calls,
    in_different_orders,
    launched_calls,
)
from pinchpoint.diagnosis.evidence.attainable import Attainable, attainable, scaled
from pinchpoint.diagnosis.evidence.device_work import DeviceWork, device_work, without_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES_AND_STRIDES
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.diagnosis.rules.precision_and_layout._gathers import gathers_across
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.durations import counted, duration
from pinchpoint.trace.names import rows_named

RULE = Rule(
    needs=("device_ops", "host_ops"),
    record=SHAPES_AND_STRIDES,
    confirm='pinchpoint bench ab -- "python train.py" "python train_contiguous.py"',
)

FAR_BELOW_PEAK_RATIO = 0.5  # dense elementwise kernels reach 0.9, awkward but dense ones 0.6
LARGE_BYTES = 8 << 20  # smaller ones stay in the cache, or are bound by latency


def check(trace: Trace) -> Iterator[Found]:
    """Slow kernels on operands of different orders."""
    host = trace.host_ops
    if host is None or not host.known("strides").any():
        raise NotChecked("the recording has no strides of inputs")
    well = attainable(trace)
    if well is None:
        raise NotChecked("the memory bandwidth of this device is not known")
    yield from _lookups(trace, well)
    work = device_work(trace, _across(trace, well), "kernels on strided operands")
    if work is None:
        return
    moved = launched_calls(trace).numbers(_bytes)
    rate, came = _rate(trace, work, moved), not _turns_dimensions(trace)
    shown = f", mostly in {work.place}" if came and work.place else ""
    yield Found(
        summary=(
            f"Operands are read across their layout by {counted(work.count, 'elementwise kernel')}"
            f" a step{shown}, at {rate / 1e12:.2f} TB/s, {duration(work.ns_per_step)}"
            f" of each recorded step{_CAME * came}"
        ),
        evidence=(
            *work.evidence,
            Evidence("rate", round(rate), "bytes/s"),
            Evidence("bandwidth of the memory", well.spec.memory_bytes_per_s or 0, "bytes/s"),
            Evidence("strides of the longest", _strides(trace, work), ""),
            *((Evidence("turns of dimensions in the steps", 0, "per step"),) if came else ()),
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=(_dense(trace, well, work.rows),),
        at_best=_without_copies(trace, well, work.rows),
        location=work.place,
        fix=_WHERE_IT_IS_MADE if came else _ONCE,
        hint="y = x.t().contiguous()  # once, before it is used again and again",
    )


_ONCE = "Produce the tensor in the layout that is needed, or make it dense once"
_WHERE_IT_IS_MADE = (
    "Make it dense where its dimensions are turned, before the loop: .contiguous() there, once"
)
_CAME = "; no step turns dimensions: it came to the steps in that order"
_TURNS = frozenset(
    f"aten::{name}"
    for name in ("permute", "transpose", "t", "movedim", "moveaxis", "swapaxes", "swapdims")
) | {"aten::numpy_T", "aten::mT", "aten::adjoint", "aten::matrix_H", "aten::as_strided"}


def _turns_dimensions(trace: Trace) -> bool:
    """Whether the program changes the order of dimensions in its steps: then it may have been that.
    What operators do within themselves, as for a product of matrices, is not asked."""
    host = trace.host_ops
    assert host is not None
    turns = rows_named(trace, host, _TURNS.__contains__) & rows_in_steps(trace, host)
    operators = host["kind"] == HostKind.OPERATOR
    return bool((turns & (above(parents(host), operators) == len(host))).any())


def _dense(trace: Trace, well: Attainable, rows: Rows) -> Change:
    return scaled(trace, rows, lambda of: well.stream_ns(_bytes(of) or 0), 1.0)


def _without_copies(trace: Trace, well: Attainable, rows: Rows) -> tuple[Change, ...]:
    """What changes nothing but the order need not be done, if the tensor is made in that order."""
    moved = launched_calls(trace).where(_only_moves)[rows]
    if not moved.any():
        return ()
    gone = tuple(without_work(trace, rows[moved]))
    return gone if moved.all() else (*gone, _dense(trace, well, rows[~moved]))


def _only_moves(of: LaunchedCall) -> bool:
    """Whether a call writes what it reads, type and shape the same."""
    if of.call.name != "aten::copy_":
        return False
    return of.call.shape(0) == of.call.shape(1) and of.call.dtype(0) == of.call.dtype(1)


def _lookups(trace: Trace, well: Attainable) -> Iterator[Found]:
    """Rows that are looked up in a table in which their elements lie apart."""
    ops, gathers = trace.device_ops, gathers_across(trace, well)
    assert ops is not None
    slow = np.zeros(len(ops), np.bool_)
    took = ops["duration_ns"][gathers.rows]
    slow[gathers.rows] = gathers.dense_ns < took * FAR_BELOW_PEAK_RATIO
    work = device_work(trace, slow, "lookups of rows that lie apart in memory")
    if work is None:
        return
    at = np.searchsorted(gathers.rows, work.rows)
    took = took[at].astype(np.float64)
    rate = float(gathers.moved_bytes[at].sum() / took.sum() * 1e9)
    yield Found(
        summary=(
            f"Rows whose elements lie apart in memory are read by {counted(work.count, 'lookup')}"
            f" a step, at {rate / 1e12:.2f} TB/s, {duration(work.ns_per_step)}"
            " of each recorded step"
        ),
        evidence=(
            *work.evidence,
            Evidence("rate", round(rate), "bytes/s"),
            Evidence("bandwidth of the memory", well.spec.memory_bytes_per_s or 0, "bytes/s"),
            Evidence("strides of the table", _strides(trace, work), ""),
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=(ScaleDeviceOps(work.rows, gathers.dense_ns[at] / took),),
        location=work.place,
        fix="Keep the table with its rows side by side: make it dense once, before it is used",
        hint="table = saved.t().contiguous()  # once; then table[index] as before",
    )


def _across(trace: Trace, well: Attainable) -> NDArray[np.bool_]:
    ops = trace.device_ops
    assert ops is not None
    moved = launched_calls(trace).numbers(_bytes)
    category = category_of_device_ops(trace)
    plain = np.isin(category, (Category.ELEMENTWISE, Category.DATA_MOVEMENT))
    least = well.spec.memory_bytes_per_s or 0.0
    slow = moved < ops["duration_ns"] * 1e-9 * least * FAR_BELOW_PEAK_RATIO
    wanted: NDArray[np.bool_] = plain & slow & (moved >= LARGE_BYTES)
    wanted[wanted] = ~_own_layouts(trace, np.flatnonzero(wanted))
    return wanted


def _own_layouts(trace: Trace, rows: Rows) -> NDArray[np.bool_]:
    """Device operations in a call that got nothing but tensors in row-major order: what lies across
    is the library's own, as the columns that a sparse product works on."""
    host, launched = trace.host_ops, launched_calls(trace).operator
    assert host is not None
    parent = parents(host)
    is_call = np.append(host["kind"] == HostKind.OPERATOR, False)
    is_call[:-1] &= np.array([n.startswith("aten::") for n in trace.names], np.bool_)[host["name"]]
    outermost = launched[rows]
    while (further := is_call[parent[outermost]]).any():
        outermost = np.where(further, parent[outermost], outermost)
    calls, which = distinct_calls(trace, outermost)
    return np.array([_is_row_major(of) for of in calls], np.bool_)[which]


def _is_row_major(of: LaunchedCall) -> bool:
    """Whether all strides that were recorded are those of dense tensors, last dimension first."""
    known = [(of.call.shape(i), stride) for i, stride in enumerate(of.strides) if stride]
    return bool(known) and all(shape and _is_dense(shape, stride) for shape, stride in known)


def _is_dense(shape: Shape, stride: Shape) -> bool:
    """Dimensions of one element count, too: their strides tell the layouts of pictures apart."""
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=False):
        if step != expected:
            return False
        expected *= size
    return True


def _bytes(of: LaunchedCall) -> float | None:
    """What a call must move, if its large operands lie across each other; None if they do not."""
    cost = cost_of(of.call) if in_different_orders(of) else None
    return None if cost is None or cost.bytes is None else float(cost.bytes)


def _rate(trace: Trace, work: DeviceWork, moved: NDArray[np.float64]) -> float:
    ops = trace.device_ops
    assert ops is not None
    return float(moved[work.rows].sum() / ops["duration_ns"][work.rows].sum() * 1e9)


def _strides(trace: Trace, work: DeviceWork) -> str:
    ops, calls = trace.device_ops, launched_calls(trace)
    assert ops is not None
    longest = work.rows[np.argmax(ops["duration_ns"][work.rows])]
    of = calls.calls[calls.which[longest]]
    return " and ".join(str(list(s)) for s in of.strides if s)
