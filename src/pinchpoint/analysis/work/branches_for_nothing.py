"""Calls of a module whose whole backward pass runs for gradients that nobody uses.

Where the first layer of a call makes the gradient of its weight and none of its input, nothing
before the call wants a gradient. If the weights in the call are all such that nobody uses theirs,
each node of it runs in vain: with gradients switched off for these weights, the call records no
graph at all. What the caller then makes of its result needs no gradient either, unless a trained
part comes in there; how much of the caller's own backward pass that is does not show.
"""

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents, within
from pinchpoint.analysis.host.attribution import backward_nodes, forward_rows
from pinchpoint.analysis.host.input_arguments import Shape
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Mask, Rows, distinct
from pinchpoint.trace.names import rows_named

_MODULE = "nn.Module: "
_WEIGHTS = {"aten::convolution_backward": 2}  # the argument that is the weight


@dataclass(frozen=True, eq=False)
class BranchesForNothing:
    """Rows of ``device_ops`` in judged steps, and of ``host_ops``."""

    calls: int  # of modules, in all judged steps
    device_rows: Rows  # of the backward pass of these calls
    host_rows: Rows
    beside_rows: Rows  # of the caller's own backward pass, behind the call: a part of them, too


def branches_for_nothing(trace: Trace, unused: set[Shape | None]) -> BranchesForNothing | None:
    """None without any; ``unused`` are shapes of weights that alone have them."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None:
        return None
    layers = _layers(trace, unused)
    modules = rows_named(trace, host, lambda name: name.startswith(_MODULE))
    modules &= host["kind"] != HostKind.OPERATOR
    calls = [_call(trace, modules, layers, root) for root in _roots(trace, unused)]
    rows = distinct(np.array([call for call in calls if call is not None], np.intp))
    if not len(rows):
        return None
    around = np.append(nearest(parents(host), modules), len(host))
    callers = around[parents(host)[rows]]
    inside, beside = np.zeros(len(host), np.bool_), np.zeros(len(host), np.bool_)
    for call, caller in zip(rows.tolist(), callers.tolist(), strict=True):
        inside |= _backward_of(trace, int(host["start_ns"][call]), int(host.end_ns[call]))
        if caller < len(host):
            beside |= _backward_of(trace, int(host.end_ns[call]), int(host.end_ns[caller]))
    by = ops.filled("host_op", len(host))
    steps = device_ops_in_steps(trace)
    return BranchesForNothing(
        calls=len(rows),
        device_rows=np.flatnonzero(np.append(inside, False)[by] & steps),
        host_rows=np.flatnonzero(inside & ~np.append(inside, False)[parents(host)]),
        beside_rows=np.flatnonzero(np.append(beside & ~inside, False)[by] & steps),
    )


def _wants_no_input(of: LaunchedCall) -> bool:
    """The last argument says which of input, weight and bias get a gradient."""
    last = len(of.call.values) - 1
    return of.call.name in _WEIGHTS and last > 0 and of.call.flags(last)[:2] == (False, True)


def _weight(of: LaunchedCall) -> Shape | None:
    at = _WEIGHTS.get(of.call.name)
    return None if at is None else of.call.shape(at)


def _nodes(trace: Trace, chosen: Mask) -> Rows:
    """Forward rows of the backward nodes that launch these device operations."""
    host, calls = trace.host_ops, launched_calls(trace)
    assert host is not None
    forward = np.append(forward_rows(trace), len(host))
    found = distinct(forward[calls.operator[chosen & device_ops_in_steps(trace)]])
    return found[found < len(host)]


def _roots(trace: Trace, unused: set[Shape | None]) -> list[int]:
    calls = launched_calls(trace)
    first = calls.where(lambda of: _weight(of) in unused and _wants_no_input(of))
    return _nodes(trace, first).tolist() if None not in unused else []


def _layers(trace: Trace, unused: set[Shape | None]) -> tuple[Rows, Rows]:
    """Forward rows of layers whose weights nobody's gradients are, and of all others known."""
    calls = launched_calls(trace)
    known = calls.where(lambda of: _weight(of) is not None)
    mine = calls.where(lambda of: _weight(of) in unused)
    return _nodes(trace, known & mine), _nodes(trace, known & ~mine)


def _call(trace: Trace, modules: Mask, layers: tuple[Rows, Rows], root: int) -> int | None:
    """The outermost call of a module that begins with this layer and has no used weights."""
    host = trace.host_ops
    assert host is not None
    parent, start = parents(host), host["start_ns"]
    forward = distinct(forward_rows(trace)[within(parent, backward_nodes(trace))[:-1]])
    forward = forward[forward < len(host)]
    found, at, own_ns = None, int(parent[root]), int(start[root])
    while at < len(host):
        if host["kind"][at] == HostKind.OPERATOR:
            own_ns = int(start[at])  # what it does before, as casts of the weight, is of the layer
        if modules[at]:
            begin, end = int(start[at]), int(host.end_ns[at])
            before = (start[forward] >= begin) & (start[forward] < own_ns)
            used = start[layers[1]]
            if before.any() or ((used >= begin) & (used < end)).any():
                break
            found = at
        at = int(parent[at])
    return found


def _backward_of(trace: Trace, begin_ns: int, end_ns: int) -> Mask:
    """Rows of the backward pass whose forward operators ran in this time."""
    host = trace.host_ops
    assert host is not None
    forward = forward_rows(trace)
    start = np.append(host["start_ns"], -1)[forward]
    inside: Mask = within(parents(host), backward_nodes(trace))[:-1]
    step = judged_steps(trace).step_of(host["start_ns"]) >= 0
    return inside & step & (start >= begin_ns) & (start < end_ns)
