"""A long kernel leaves most of the device without work.

## What it looks for
Kernels that run for long, launched with so few blocks that most multiprocessors have none. Grid and
block are in the recording; no counters are needed. Collectives are left out: they are meant to use
few blocks. Short kernels with few blocks are a matter of launches, and slow ones with many blocks
of something else. Not checked without grids, or where the device's size is not known; nor is one
kernel of a library's operator, called once a step, that launches others over the whole device
beside it: what its authors left to one block goes step by step, and whether it could be given less
to go through is in no recording.

## Why it matters
A block runs on one multiprocessor. With one block, all the others of the device have nothing to do
for as long as the kernel lasts, and a timeline still shows the device as busy. The prediction is
what the same work takes spread over all multiprocessors, which is the most that spreading can give.

## How to fix it
Divide the work over a grid: a block for every part of the output, and hundreds of threads a block.
Where one thread walks over all elements, let every thread walk with a stride of the whole grid.
The grid of a library's operator is not yours to choose: give it less to go through, or call it once
where it is called in a loop. What that wins is between spreading these kernels and going without
the calls.

## When to ignore it
Where each step of the work needs the one before it, or other kernels run on the rest of the device
at the same time.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.ancestry import nearest, parents, within_rows
from pinchpoint.analysis.host.attribution import launching_operators
from pinchpoint.analysis.host.frames import Owner, owners
from pinchpoint.analysis.host.launches import own_work
from pinchpoint.analysis.replay.changes import Change, DropSyncs, ScaleDeviceOps, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.tables.kernels import blocks_of_device_ops
from pinchpoint.analysis.time.host_waits import host_waits
from pinchpoint.diagnosis.evidence.device_work import busiest_place, without_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.trace import DeviceKind, HostKind, Trace
from pinchpoint.trace.arrays import Mask, Rows

RULE = Rule(
    needs=("device_ops",),
    record=Record("a recording with the grids of kernels, and a device whose size is known"),
)

# Of the multiprocessors: four blocks on an H100. Kernels of libraries that reduce over many rows
# (gradients of a normalisation) use a tenth of them, and nobody but their authors can change that.
FILLED_RATIO = 0.04
# Shorter kernels are held back by latency and launches as much as by their grid.
LONG_NS = 100_000


def check(trace: Trace) -> Iterator[Found]:
    """The kernel that loses most time by its small grid."""
    ops = trace.device_ops
    assert ops is not None
    units = max((d.multiprocessors or 0 for d in trace.devices), default=0)
    blocks = blocks_of_device_ops(trace)
    # Without steps, the first kernel was issued before the recorded device time began.
    counted = own_work(trace) if steps(trace).how == "none" else device_ops_in_steps(trace)
    kernel = (ops["kind"] == DeviceKind.KERNEL) & counted
    if not units or not blocks[kernel].any():
        raise NotChecked("the recording has no grid sizes, or not the device's size")
    few = kernel & (blocks > 0) & (blocks <= FILLED_RATIO * units)
    rows = np.flatnonzero(few & (ops["duration_ns"] >= LONG_NS))
    if not len(rows):
        return
    in_turn = _goes_step_by_step(trace, rows, blocks >= units)
    if in_turn.all():
        kernel_name, operator = trace.names[int(ops["name"][rows[0]])], _operator(trace, rows)
        raise NotChecked(_IN_TURN.format(name=kernel_name[:60], operator=operator), _LESS)
    rows = rows[~in_turn]
    lost = ops["duration_ns"][rows] * (1 - blocks[rows] / units)
    name = int(np.bincount(ops["name"][rows], weights=lost).argmax())
    yield _finding(trace, rows[ops["name"][rows] == name], units)


_IN_TURN = (
    "{name} is the part of {operator} that goes step by step, once a step: its other kernels fill"
    " the device"
)
_LESS = Record("the same with less for this operator to go through, if less would do")


def _goes_step_by_step(trace: Trace, rows: Rows, fills: Mask) -> Mask:
    """Which of these kernels their operator leaves to few blocks although it fills the device with
    others, in calls of which a step has one."""
    ops, host = trace.device_ops, trace.host_ops
    if ops is None or host is None:
        return np.zeros(len(rows), np.bool_)
    launcher = launching_operators(trace)
    has_full = np.zeros(len(host) + 1, np.bool_)
    has_full[launcher[fills]] = True
    has_full[len(host)] = False
    name = ops["name"][rows]
    found: Mask = has_full[launcher[rows]] & (per_step(trace, 1) * np.bincount(name)[name] <= 1)
    return found


def _finding(trace: Trace, rows: NDArray[np.intp], units: int) -> Found:
    ops = trace.device_ops
    assert ops is not None
    took = ops["duration_ns"][rows]
    longest = int(rows[took.argmax()])
    nowhere = len(trace.host_ops or ())
    place, _ = busiest_place(trace, ops.filled("host_op", nowhere)[rows].astype(np.intp), took)
    blocks = int(blocks_of_device_ops(trace)[longest])
    name, of_library = trace.names[int(ops["name"][longest])], _operator(trace, rows) is not None
    size = trace.text(ops, "block", longest)
    threads = f" of {size} threads" if size else ""
    return Found(
        summary=(
            f"{name[:60]} runs {blocks} block{'s' if blocks != 1 else ''}{threads} on a device of"
            f" {units} multiprocessors: {100 * (1 - min(blocks / units, 1)):.0f} % of them have"
            " nothing to do"
        ),
        evidence=(
            Evidence("blocks", blocks, "count", int(ops["start_ns"][longest]), name),
            Evidence("multiprocessors", units, "count"),
            Evidence("time of these kernels", int(per_step(trace, int(took.sum()))), "ns"),
        ),
        cost_ns_per_step=round(per_step(trace, float((took * (1 - blocks / units)).sum()))),
        changes=(ScaleDeviceOps(rows, blocks / units),),
        at_best=_without_calls(trace, rows) if of_library else (),
        location=place,
        fix=_GIVE_LESS if of_library else _SPREAD,
        hint=None if of_library else "blocks = (n + 255) // 256  # and 256 threads each",
        confidence="medium",
    )


_SPREAD = "Launch it with a block for every part of the work, and hundreds of threads a block"
_GIVE_LESS = (
    "Its grid is the operator's own: give the operator less to go through (keep the best candidates"
    " before it, say), call it once for all in place of once for each, or use another one"
)


def _operator(trace: Trace, rows: Rows) -> str | None:
    """The operator that launched most of these kernels: its grid is not the program's to choose."""
    host = trace.host_ops
    launcher = launching_operators(trace)[rows]
    if host is None or 2 * int((launcher < len(host)).sum()) <= len(rows):
        return None
    names = host["name"][launcher[launcher < len(host)]].astype(np.int64)
    return trace.names[int(np.bincount(names).argmax())]


def _called_by_users(trace: Trace) -> Rows:
    """As ``called_by_program``, libraries left out: for each row of ``host_ops`` the outermost one
    around it that is not the user's own, ``len(host_ops)`` for those and for no row."""
    host = trace.host_ops
    assert host is not None
    chain = parents(host)
    own = np.isin(host["kind"], (HostKind.MODULE, HostKind.ANNOTATION))
    own |= owners(trace) == Owner.USER
    called = np.append(nearest(chain, np.append(own, True)[chain] & ~own), len(host))
    return np.where(np.append(own, True), len(host), called)


def _without_calls(trace: Trace, rows: Rows) -> tuple[Change, ...]:
    """Without what the program wrote around these kernels: what is no longer gone through one by
    one takes its other kernels, waits and host work with it."""
    ops, host = trace.device_ops, trace.host_ops
    assert ops is not None
    assert host is not None
    around = np.unique(_called_by_users(trace)[ops.filled("host_op", len(host))[rows]])
    around = around[around < len(host)]
    if not len(around):
        return ()
    inside, waits = within_rows(parents(host), around), host_waits(trace)
    launched = inside[ops.filled("host_op", len(host)).astype(np.intp)]
    gone = np.flatnonzero(launched & device_ops_in_steps(trace))
    calls = waits.api_calls[inside[waits.host_op]]
    return (*without_work(trace, gone), DropSyncs(calls), ScaleHostSpans(around, 0.0))
