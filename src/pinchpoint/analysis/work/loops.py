"""Loops of a step by their structure: the same operators again and again, and what varies.

In the order of launches, a loop is a run in which each operator is followed, so many launches
later, by the same one. What its iterations differ in tells loops apart: the module (layers,
experts), the length of a tensor (a sequence that grows), other sizes (parameters, requests of
several lengths), or nothing (time steps, tokens, requests of one length). Whether one iteration
needs the result of the one before is not in a recording.
"""

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum

import numpy as np

from pinchpoint.analysis.host.frames import frame_of
from pinchpoint.analysis.host.input_arguments import tensor_shapes
from pinchpoint.analysis.host.source_lines import places
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.work.phases import OPTIMIZER, phase_of_device_ops
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.frozen import dataclass
from pinchpoint.trace import ApiKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask, Rows, distinct
from pinchpoint.trace.intervals import flatten

FEWEST_ITERATIONS = 4  # fewer repeats are as likely to be two halves of something
LONGEST_BODY = (
    512  # launches of one iteration: forward and backward of a layer take about a hundred
)
LEAST_RATIO = 0.02  # of the step's launches


class Varies(Enum):
    """What is different from one iteration to the next."""

    PARAMETER = "the parameter"  # the optimizer, or averages and norms over parameters
    MODULE = "the module"  # layers, experts
    LENGTH = "the length"  # a sequence that grows
    SIZES = "the sizes"  # other inputs
    NOTHING = "nothing"  # time steps, tokens, requests


@dataclass(frozen=True)
class Loop:
    """One loop of a step; those that are alike (of each direction, of each pass) are one."""

    where: str | None  # the program's function that launches most of it
    frame: int | None  # the name of its frame, as a position in the trace's names
    times: int  # that the step goes through it
    iterations: int  # of the longest
    operations: int  # of one iteration
    device_ns: int  # of all iterations
    span_ns: int  # from the first launch to the end of the last operation
    busy_ratio: float  # of that span, in which the device works
    varies: Varies
    waits: bool  # each iteration waits for the device
    body: tuple[str, ...]  # the operators of an iteration, first ones


@once_per_trace
def loops(trace: Trace) -> tuple[Loop, ...]:
    """The loops of one usual step, longest first."""
    ops, host = trace.device_ops, trace.host_ops
    if ops is None or host is None or not len(host) or not len(judged_steps(trace)):
        return ()
    rows = _usual_step(trace)
    calls = launched_calls(trace)
    known = calls.operator[rows] < len(host)
    rows = rows[known]
    if len(rows) < FEWEST_ITERATIONS:
        return ()
    name = host["name"][calls.operator[rows]].astype(np.int64)
    found = [_loop(trace, rows[low:high], period) for low, high, period in _runs(name)]
    return tuple(sorted(_together(found), key=lambda one: -one.span_ns))


def _together(found: list[Loop]) -> Iterator[Loop]:
    groups: dict[object, list[Loop]] = {}
    for one in found:
        key = (one.where, one.operations, one.varies, tuple(sorted(one.body)))
        groups.setdefault(key, []).append(one)
    for alike in groups.values():
        span = sum(one.span_ns for one in alike)
        busy = sum(one.busy_ratio * one.span_ns for one in alike)
        yield replace(
            alike[0],
            times=len(alike),
            iterations=max(one.iterations for one in alike),
            device_ns=sum(one.device_ns for one in alike),
            span_ns=span,
            busy_ratio=busy / span if span else 0.0,
            waits=any(one.waits for one in alike),
        )


def _usual_step(trace: Trace) -> Rows:
    """Device operations of the judged step that is nearest to the typical one, as launched."""
    ops, timed = trace.device_ops, steps(trace)
    assert ops is not None
    mine = np.flatnonzero(device_ops_in_steps(trace))
    call = ops.filled("api_call", -1)[mine].astype(np.int64)
    calls = trace.api_calls
    issued = ops["start_ns"][mine]
    if calls is not None and len(calls):
        issued = np.where(call >= 0, calls["start_ns"][np.maximum(call, 0)], issued)
    windows = judged_steps(trace)
    apart = np.abs((windows.end_ns - windows.start_ns) - float(timed.typical_ns or 0))
    at = int(np.argmin(apart))
    inside = (issued >= windows.start_ns[at]) & (issued < windows.end_ns[at])
    order = np.lexsort((ops["start_ns"][mine], issued))
    found: Rows = mine[order][inside[order]]
    return found


def _runs(name: Ints) -> Iterator[tuple[int, int, int]]:
    """Begin, end and period of runs that repeat, those of most launches first, without overlap."""
    least = max(int(LEAST_RATIO * len(name)), FEWEST_ITERATIONS)
    found = []
    for period in range(1, min(LONGEST_BODY, len(name) // FEWEST_ITERATIONS) + 1):
        same = np.concatenate(([False], name[period:] == name[:-period], [False]))
        edges = np.flatnonzero(np.diff(same.astype(np.int8)))
        for low, high in edges.reshape(-1, 2).tolist():
            whole = (high - low) // period + 1
            if whole >= FEWEST_ITERATIONS and whole * period >= least:
                found.append((low, low + whole * period, period))
    found.sort(key=lambda run: (run[0] - run[1], run[2]))
    taken = np.zeros(len(name), np.bool_)
    for low, high, period in found:
        if not taken[low:high].any():
            taken[low:high] = True
            yield low, high, period


def _loop(trace: Trace, rows: Rows, period: int) -> Loop:
    ops, host = trace.device_ops, trace.host_ops
    assert ops is not None
    assert host is not None
    calls = launched_calls(trace)
    busy = flatten(ops["start_ns"][rows], ops.end_ns[rows])
    operator = calls.operator[rows]
    begin = int(min(host["start_ns"][operator].min(), ops["start_ns"][rows].min()))
    span = int(ops.end_ns[rows].max()) - begin
    took = ops["duration_ns"][rows]
    frame = _frame(trace, rows)
    found = None if frame is None else frame_of(trace.names[frame])
    return Loop(
        where=None if found is None else f"{found.function} ({found.file}:{found.line})",
        frame=frame,
        times=1,
        iterations=len(rows) // period,
        operations=period,
        device_ns=int(took.sum()),
        span_ns=span,
        busy_ratio=busy.total / span if span else 0.0,
        varies=_varies(trace, rows, period),
        waits=_waits(trace, operator, len(rows) // period),
        body=tuple(trace.names[at] for at in host["name"][operator[:period]].tolist()),
    )


def _frame(trace: Trace, rows: Rows) -> int | None:
    ops = trace.device_ops
    assert ops is not None
    frame = places(trace).frame[ops.filled("host_op", -1)[rows]]
    return int(np.bincount(frame[frame >= 0]).argmax()) if (frame >= 0).any() else None


def _varies(trace: Trace, rows: Rows, period: int) -> Varies:
    ops, host = trace.device_ops, trace.host_ops
    assert ops is not None
    assert host is not None
    if (phase_of_device_ops(trace)[rows] == OPTIMIZER).mean() > 0.5:
        return Varies.PARAMETER
    by_iteration = rows.reshape(-1, period)
    launcher = ops.filled("host_op", -1)[by_iteration]
    module = np.append(places(trace).module, -1)[launcher]
    first = module[:, 0]
    if (first >= 0).all() and len(distinct(first)) > len(first) // 2:
        return Varies.MODULE
    operator = launched_calls(trace).operator[by_iteration]
    shapes = host.filled("shapes", -1)[operator].astype(np.int64)
    changing = (shapes != shapes[:1]).any(axis=0) & (shapes >= 0).all(axis=0)
    if not changing.any():
        return Varies.NOTHING
    sizes = _elements(trace, shapes[:, int(np.argmax(changing))])
    rises = np.diff(sizes)
    grows = (rises >= 0).all() and 2 * (rises > 0).sum() >= len(rises)
    return Varies.LENGTH if grows else Varies.SIZES


def _elements(trace: Trace, shapes: Ints) -> Ints:
    """Elements of the largest tensor of each call."""
    total = [
        max((int(np.prod(shape)) for shape in tensor_shapes(trace.names[at])), default=0)
        for at in shapes.tolist()
    ]
    return np.array(total, np.int64)


_WAITS = (ApiKind.SYNC_DEVICE, ApiKind.SYNC_STREAM, ApiKind.SYNC_EVENT)


def _waits(trace: Trace, operator: Rows, iterations: int) -> bool:
    """Whether the loop's thread waits for the device once an iteration or more."""
    calls, host = trace.api_calls, trace.host_ops
    if calls is None or host is None:
        return False
    begin, end = int(host["start_ns"][operator].min()), int(host.end_ns[operator].max())
    mine: Mask = np.isin(calls["kind"], _WAITS)
    mine &= (calls["start_ns"] >= begin) & (calls["start_ns"] <= end)
    mine &= calls["thread"] == host["thread"][operator[0]]
    return int(mine.sum()) >= iterations - 1
