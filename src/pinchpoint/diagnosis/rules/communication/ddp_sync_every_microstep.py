"""Gradients are reduced in every micro-step of an accumulated step.

## What it looks for
Several forward passes of `DistributedDataParallel` in one optimizer step, with the whole set of
all-reduces behind each of them: the same sizes in the same order, as many times as there are
passes. Only reductions count; layers that exchange tokens (all-to-all) do so in each pass and must.
Two models that take turns reduce sets of their own. Not checked without operators. Of a program on
CPUs the same of the backend's collectives (gloo, MPI): as many behind each pass; what the thread of
the steps loses is their time in which it runs no operator, and what makes gradients ready for them.

## Why it matters
Only the sum over all micro-steps is used. All reductions but the last move bytes for nothing, each
makes all ranks meet, and kernels beside them run slower.

## How to fix it
Run all micro-steps but the last under `model.no_sync()`, forward and backward both.

## When to ignore it
Where accumulated gradients would not fit beside the buckets.
"""

from collections.abc import Iterator
from dataclasses import fields

import numpy as np

from pinchpoint.analysis.device.collectives import Collectives, collectives, slowed_by
from pinchpoint.analysis.host.ancestry import parents, within
from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.replay import (
    Change,
    DropDeviceOps,
    RemoveHostTime,
    ScaleDeviceOps,
    ScaleHostSpans,
)
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step, rows_in_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.host_spans import host_spans, named
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, About, NotChecked, Rule
from pinchpoint.trace import DeviceKind, HostKind, Trace
from pinchpoint.trace.durations import duration
from pinchpoint.trace.intervals import flatten, subtract
from pinchpoint.trace.names import rows_named

RULE = Rule(
    needs=("host_ops",),
    record=CPU_AND_DEVICE,
    about=About.COMMUNICATION,
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "torchrun train.py" "torchrun train_fixed.py"',
)

_FORWARD = "DistributedDataParallel.forward"
# The node of autograd that adds a gradient up, and what is run for it, hooks included.
_ADDS = "torch::autograd::AccumulateGrad"
_RUNS = f"autograd::engine::evaluate_function: {_ADDS}"
# What the reducer does to a gradient in its hook: to a mean, and into a bucket.
_INTO_BUCKETS = ("aten::div_", "aten::div", "aten::mul", "aten::copy_")


def check(trace: Trace) -> Iterator[Found]:
    """Steps that reduce the same gradients several times."""
    found, host, ops = collectives(trace), trace.host_ops, trace.device_ops
    if host is None:
        return
    forward = named(trace, lambda name: name == _FORWARD)
    rows = np.flatnonzero(forward & rows_in_steps(trace, host))
    if computes_on_cpu(trace):
        yield from _by_the_host(trace, rows)
        return
    if ops is None or trace.api_calls is None:
        raise NotChecked("no device activity was recorded")
    if found is None:
        return
    times = round(per_step(trace, len(rows)))
    found = _reductions(found)
    if times < 2 or not _repeats(found, times):
        return
    needless = _needless(found, times)
    wanted = np.zeros(len(ops), np.bool_)
    wanted[needless] = True
    work = device_work(trace, wanted, "needless collectives")
    if work is None:
        return
    first = int(rows[0])
    yield Found(
        summary=(
            f"Each of {times} micro-steps reduces all gradients,"
            f" {duration(work.ns_per_step)} a step more than the last one needs"
        ),
        evidence=(
            Evidence("forward passes", times, "per step", int(host["start_ns"][first]), _FORWARD),
            *work.evidence,
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=tuple(_without(trace, needless)),
        location=work.place,
        fix="Run all micro-steps but the last under no_sync()",
        hint="with model.no_sync(): model(x).loss.backward()  # forward and backward",
    )


def _by_the_host(trace: Trace, forward: np.ndarray) -> Iterator[Found]:
    """The same of a program on CPUs, whose backend reduces in a thread of its own."""
    host, windows = trace.host_ops, judged_steps(trace)
    assert host is not None
    times = round(per_step(trace, len(forward)))
    begins, ends = host["start_ns"], host.end_ns
    sent = named(trace, lambda name: name.startswith(_BY_THE_HOST) and name.endswith(_ADD_UP))
    sent_rows = np.flatnonzero(sent & rows_in_steps(trace, host))
    pass_of = np.searchsorted(begins[forward], begins[sent_rows], "right") - 1
    behind = np.bincount(pass_of[pass_of >= 0], minlength=len(forward))
    if times < 2 or len(forward) != times * len(windows) or not _all_alike(behind):
        return
    last = np.append(
        windows.step_of(begins[forward])[1:] != windows.step_of(begins[forward])[:-1], True
    )
    needless = sent_rows[(pass_of >= 0) & ~last[np.maximum(pass_of, 0)]]
    ready = np.flatnonzero(named(trace, lambda name: name.startswith(_MAKES_READY)))
    of = np.searchsorted(begins[forward], begins[ready], "right") - 1
    ready = ready[(of >= 0) & ~last[np.maximum(of, 0)] & rows_in_steps(trace, host)[ready]]
    thread = host["thread"] == steps(trace).thread
    works = thread & (host["kind"] == HostKind.OPERATOR)
    alone = subtract(flatten(begins[needless], ends[needless]), flatten(begins[works], ends[works]))
    lost = round(per_step(trace, alone.total + int(host["duration_ns"][ready].sum())))
    # Part of it may be waiting for a rank that is late, which is then done at the last reduction.
    half = alone.end - ((alone.end - alone.start) * SURE_RATIO).astype(np.int64)
    place = host_spans(trace, named(trace, lambda name: name == _FORWARD), "forward passes")
    yield Found(
        summary=(
            f"Each of {times} micro-steps reduces all gradients between the processes,"
            f" {duration(lost)} a step more than the last one needs"
        ),
        evidence=(
            Evidence("forward passes", times, "per step", int(begins[forward[0]]), _FORWARD),
            Evidence("reductions", round(per_step(trace, len(sent_rows)), 1), "per step"),
            Evidence("their time beside no operator", round(per_step(trace, alone.total)), "ns"),
        ),
        cost_ns_per_step=lost,
        changes=(RemoveHostTime(half, alone.end), ScaleHostSpans(ready, 0.0)),
        at_best=(RemoveHostTime(alone.start, alone.end), ScaleHostSpans(ready, 0.0)),
        location=None if place is None else place.place,
        fix="Run all micro-steps but the last under no_sync()",
        hint="with model.no_sync(): model(x).loss.backward()  # forward and backward",
    )


def _all_alike(counts: np.ndarray) -> bool:
    return bool(len(counts)) and bool(counts[0]) and bool((counts == counts[0]).all())


SURE_RATIO = 0.5  # a judgement: one rank alone does not show for whom it waits
_BY_THE_HOST = ("gloo:", "mpi:", "ucc:")
_ADD_UP = ("all_reduce", "allreduce", "reduce_scatter")
_MAKES_READY = (
    "torch::distributed::reducer::",
    "torch.distributed.ddp.reducer::",
    "c10d::allreduce",
)


def _without(trace: Trace, needless: np.ndarray) -> Iterator[Change]:
    """No such collectives, no host work for them, and what ran beside them as fast as alone."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    hooks = _in_hooks(trace, needless)
    launched_by = ops.filled("host_op", len(host)).astype(np.intp)
    yield DropDeviceOps(np.concatenate((needless, np.flatnonzero(np.isin(launched_by, hooks)))))
    around = np.unique(np.concatenate((launched_by[needless], hooks)))
    yield ScaleHostSpans(around[around < len(host)], 0.0)
    for kernels in slowed_by(trace, needless):
        yield ScaleDeviceOps(kernels.rows, kernels.alone_ratio)


def _in_hooks(trace: Trace, needless: np.ndarray) -> np.ndarray:
    """Operators that make gradients ready for these collectives: without them, ``no_sync()`` runs
    none of the reducer's hooks."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    above = parents(host)
    inside = within(above, named(trace, lambda name: name == _RUNS))[:-1]
    inside &= ~within(above, named(trace, lambda name: name == _ADDS))[:-1]
    rows = np.flatnonzero(inside & rows_named(trace, host, _INTO_BUCKETS.__contains__))
    sends = np.flatnonzero(ops["kind"] == DeviceKind.COLLECTIVE)
    sends = sends[ops.known("host_op")[sends]]
    begun = host["start_ns"][ops["host_op"][sends].astype(np.intp)]
    order = np.argsort(begun, kind="stable")
    following = np.searchsorted(begun[order], host["start_ns"][rows])
    waste = np.append(np.isin(sends[order], needless), False)
    needless_rows: np.ndarray = rows[waste[following]]
    return needless_rows


def _reductions(found: Collectives) -> Collectives:
    """Those that add up gradients."""
    mine = np.isin(found.kind, ("allreduce", "reduce_scatter", "reduce"))
    columns = (f.name for f in fields(found))
    return Collectives(**{name: getattr(found, name)[mine] for name in columns})


def _repeats(found: Collectives, times: int) -> bool:
    """Whether each step's collectives are one sequence of sizes, ``times`` times over."""
    whole = False
    for step in np.unique(found.step).tolist():
        size = found.bytes[found.step == step]
        once = len(size) // times
        if not once or len(size) % times:
            continue
        whole = True
        if not np.array_equal(size[once:], size[:-once]):
            return False
    return whole


def _needless(found: Collectives, times: int) -> np.ndarray:
    parts = []
    for step in np.unique(found.step).tolist():
        rows = found.rows[found.step == step]
        parts.append(rows[: len(rows) - len(rows) // times])
    return np.concatenate(parts)
