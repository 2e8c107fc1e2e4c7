"""What a trace without memory events still shows: driver calls, and graph nodes without backward.

The allocator asks the driver for memory only while its cache cannot serve a request. In a steady
loop that stops after the first steps; a loop that asks in every step and gives nothing back keeps
what it gets. And autograd numbers the nodes it records, so a forward pass that records a graph is
told from one that does not even where no backward pass follows.
"""

from typing import TYPE_CHECKING

import numpy as np

from pinchpoint.analysis.costs import OperatorCall
from pinchpoint.analysis.host.ancestry import operators_around
from pinchpoint.analysis.host.input_arguments import input_dtypes, input_shapes
from pinchpoint.analysis.memory.history import once_per_history
from pinchpoint.analysis.steps.in_steps import judged_steps, rows_in_steps
from pinchpoint.frozen import dataclass
from pinchpoint.hardware.dtypes import bytes_of
from pinchpoint.regex import regex
from pinchpoint.trace import ApiKind, Frame, HostKind, Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Rows, distinct
from pinchpoint.trace.names import rows_named

if TYPE_CHECKING:
    from pinchpoint.analysis.memory.history import History
    from pinchpoint.analysis.memory.owners.phases import Run


MIN_STEPS = 4  # of which the first may still fill the cache
SMALLEST_SEGMENT_BYTES = 2 << 20  # the least that the allocator asks the driver for
MIN_NODES = 3  # new nodes a step; a lone counter moves by one or two
# Looking for the fastest convolution, cuDNN tries workspaces of all sizes and empties the cache.
_SEARCHES = regex(r"conv|cudnn|miopen")


@dataclass(frozen=True, eq=False)
class DriverGrowth:
    """Every step takes memory from the driver and none gives any back."""

    calls: Rows  # rows of api_calls
    calls_per_step: float
    at_least_bytes_per_step: int
    ns_per_step: int


@dataclass(frozen=True, eq=False)
class DriverRetries:
    """Operators make the allocator give memory back and ask again."""

    calls: Rows
    frees: int
    ns_per_step: int


@dataclass(frozen=True)
class UnusedNodes:
    """Nodes recorded in forward passes and never run backward. ``at_most_bytes``: what they may
    keep, None without shapes; ``host_op`` is one of the operators."""

    nodes_per_step: float
    at_most_bytes: int | None
    host_op: int


@once_per_trace
def driver_growth(trace: Trace) -> DriverGrowth | None:
    """None where the loop is steady, or the trace has too few steps."""
    calls = trace.api_calls
    if calls is None or len(judged_steps(trace)) < MIN_STEPS:
        return None
    inside = rows_in_steps(trace, calls)
    rows = np.flatnonzero((calls["kind"] == ApiKind.MALLOC) & inside)
    if not len(rows) or ((calls["kind"] == ApiKind.FREE) & inside).any():
        return None
    steps = len(judged_steps(trace))
    seen = distinct(judged_steps(trace).step_of(calls["start_ns"][rows]))
    if not np.isin(np.arange(1, steps), seen).all():
        return None
    per_step = len(rows) / steps
    return DriverGrowth(
        calls=rows,
        calls_per_step=per_step,
        at_least_bytes_per_step=round(per_step * SMALLEST_SEGMENT_BYTES),
        ns_per_step=int(calls["duration_ns"][rows].sum()) // steps,
    )


@once_per_trace
def driver_retries(trace: Trace) -> DriverRetries | None:
    """Frees inside operators followed by allocations, in two steps or more."""
    calls, host = trace.api_calls, trace.host_ops
    if calls is None or host is None or not len(host) or not len(judged_steps(trace)):
        return None
    operator = operators_around(trace)
    searching = rows_named(trace, host, lambda name: _SEARCHES.search(name) is not None)
    asking = (operator < len(host)) & ~np.append(searching, False)[operator]
    by_operator = asking[calls.filled("host_op", len(host))]
    inside = rows_in_steps(trace, calls) & by_operator
    frees = np.flatnonzero((calls["kind"] == ApiKind.FREE) & inside)
    mallocs = np.flatnonzero((calls["kind"] == ApiKind.MALLOC) & inside)
    steps = distinct(judged_steps(trace).step_of(calls["start_ns"][frees]))
    if len(steps) < 2 or not len(mallocs):
        return None
    rows = np.concatenate((frees, mallocs))
    took = int(calls["duration_ns"][rows].sum()) // len(judged_steps(trace))
    return DriverRetries(rows, len(frees), took)


@once_per_trace
def unused_nodes(trace: Trace) -> UnusedNodes | None:
    """Nodes of autograd that are recorded in two steps or more, with no backward pass at all."""
    host = trace.host_ops
    if host is None or not len(host):
        return None
    operators = host["kind"] == HostKind.OPERATOR
    if runs_backward(trace):
        return None
    rows = np.flatnonzero(operators & host.known("sequence") & rows_in_steps(trace, host))
    step = judged_steps(trace).step_of(host["start_ns"][rows])
    steps = len(judged_steps(trace))
    first = _first_of_each(host["sequence"][rows])
    nodes = np.bincount(step[first], minlength=steps)
    if steps < 2 or np.median(nodes) < MIN_NODES:
        return None
    one = rows[first][step[first] == steps - 1]
    return UnusedNodes(
        float(np.median(nodes)), _kept_at_most(trace, host, one), int(rows[first[0]])
    )


@once_per_trace
def runs_backward(trace: Trace) -> bool:
    """Whether any node of autograd runs in the recording."""
    host = trace.host_ops
    if host is None:
        return False
    names = distinct(host["name"][host["kind"] == HostKind.OPERATOR]).tolist()
    return any("Backward" in trace.names[n] or "autograd::" in trace.names[n] for n in names)


def _first_of_each(sequence: Ints) -> Rows:
    """The first row of each number, in order of rows."""
    return np.sort(np.unique(sequence, return_index=True)[1])


def _kept_at_most(trace: Trace, host: Table, rows: Rows) -> int | None:
    """The largest input of each recorded operator: none can keep more than what it was given.

    None where shapes or types are not recorded, or a type is not known.
    """
    if not len(rows) or not host.known("shapes")[rows].any():
        return None
    texts = [(trace.text(host, "shapes", r), trace.text(host, "dtypes", r)) for r in rows.tolist()]
    sizes = [_largest(shapes or "", dtypes or "") for shapes, dtypes in texts]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _largest(shapes: str, dtypes: str) -> int | None:
    """Bytes of the largest tensor; lists of tensors are left out."""
    call = OperatorCall("", input_shapes(shapes) or (), input_dtypes(dtypes) or ())
    if any(bytes_of(call.dtype(i)) is None for i in call.tensors()):
        return None
    return max((call.bytes(i) for i in call.tensors()), default=0)


# ------------------------------------------------------------------------------------------------
# Passes that record a graph for a backward pass that never comes.


MIN_KEPT_BLOCKS = 4  # a model's outputs alone are fewer
GRAPH_RATIO = 0.5  # of a pass's blocks: without a graph only the results outlive their modules


@dataclass(frozen=True)
class UnusedGraphs:
    """Forward passes whose activations are kept and never used. ``peak_bytes`` of them are alive
    at the worst moment, ``event``; the results themselves are left out."""

    passes: int
    peak_bytes: int
    event: int
    place: Frame | None


@once_per_history
def unused_graphs(history: "History") -> UnusedGraphs | None:
    """None if every pass either runs backward or keeps no graph."""
    from pinchpoint.analysis.memory.growth import growth

    leaks = [leak.blocks for leak in growth(history).leaks if leak.kind == "graph"]
    leaking = set(history.blocks.stack[np.concatenate(leaks)].tolist()) if leaks else set()
    kept = [rows for run in _without_backward(history) if len(rows := _kept(history, run, leaking))]
    if not kept:
        return None
    rows = np.concatenate(kept)
    blocks = history.blocks
    change = np.zeros(len(history.replay) + 2, np.int64)
    np.add.at(change, blocks.birth[rows] + 1, blocks.requested[rows])
    np.add.at(change, blocks.death[rows] + 1, -blocks.requested[rows])
    curve = np.cumsum(change)[1:-1]
    event = int(curve.argmax())
    return UnusedGraphs(len(kept), int(curve[event]), event, _place(history, rows))


def _without_backward(history: "History") -> "list[Run]":
    """Forward runs that no backward pass follows; the last one may still get its own."""
    runs = history.phases.runs
    from pinchpoint.analysis.memory.owners.phases import Phase

    return [
        run
        for run, following in zip(runs, (*runs[1:], None), strict=False)
        if run.phase == Phase.FORWARD and (following is None or following.phase != Phase.BACKWARD)
    ]


def _kept(history: "History", run: "Run", leaking: set[int]) -> Ints:
    """The blocks of a run that a graph holds: what outlives its module, but for the results."""
    blocks = history.blocks
    mine = blocks.born_within(run.first, run.end)
    from pinchpoint.analysis.memory.owners.phases import Phase

    in_backward = np.append(history.phases.of_event, 0)[blocks.death[mine]] == Phase.BACKWARD
    from pinchpoint.analysis.memory.owners.owners import MemoryCategory

    held = history.owners.is_(MemoryCategory.ACTIVATION)[mine] & ~in_backward
    if held.sum() < MIN_KEPT_BLOCKS or held.mean() < GRAPH_RATIO or in_backward.any():
        return mine[:0]
    rows = mine[held]
    if run == history.phases.runs[-1]:
        gone = int((blocks.death[rows] < len(history.replay)).sum())
        if gone < MIN_KEPT_BLOCKS:
            return mine[:0]  # nothing shows yet that no backward pass will come
    if leaking & set(blocks.stack[rows].tolist()):
        return mine[:0]  # the graph itself stays: another finding
    result: Ints = rows[:-1]
    return result


def _place(history: "History", rows: Ints) -> Frame | None:
    """The line of the program that called the model: the innermost that all of them share."""
    stacks = {s for i in rows.tolist() if (s := history.stack_of(i)) is not None}
    shared: list[Frame] | None = None
    for stack in stacks:
        frames = list(reversed(history.signs.user_frames(stack)))
        if shared is None:
            shared = frames
        else:
            same = [a == b for a, b in zip(shared, frames, strict=False)]
            shared = shared[: same.index(False)] if False in same else shared[: len(same)]
    return shared[-1] if shared else None
