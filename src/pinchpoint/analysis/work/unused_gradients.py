"""Which gradients of a step nobody uses: added up in each step, and never taken away again.

``zero_grad`` drops the gradients of an optimizer's parameters, and the next backward pass stores
new ones without any arithmetic. A gradient that is there already is added to. So where some
parameters get theirs stored anew in each step and others have theirs added to in each step, nothing
steps or zeroes the others.
"""

import re
from collections import Counter

import numpy as np

from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.host.ancestry import nearest, parents, within, within_rows
from pinchpoint.analysis.host.attribution import backward_nodes, launching_operators
from pinchpoint.analysis.host.input_arguments import Shape, input_shapes
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps
from pinchpoint.analysis.work.backward_runs import backward_runs
from pinchpoint.analysis.work.branches_for_nothing import branches_for_nothing
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import DeviceKind, HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask, Rows, distinct
from pinchpoint.trace.names import rows_named

_ACCUMULATES = "torch::autograd::AccumulateGrad"
_ADDS = ("aten::add_", "aten::add")
_OPTIMIZER, _ZEROES = "Optimizer.step", "Optimizer.zero_grad"
# cuDNN's and CUTLASS's kernels, MIOpen's, and PyTorch's own for grouped convolutions.
_FOR_WEIGHTS = regex(r"wgrad|bwd_?weight|backward_?(weight|filter)|_wrw|weight_grad", re.I)
NOTHING: Rows = np.zeros(0, np.intp)
FEWEST_STEPS = 3  # with fewer, an optimizer that steps every second time looks like none


@dataclass(frozen=True, eq=False)
class UnusedGradients:
    """What is computed for gradients that nobody uses."""

    per_step: int  # gradients that are added to
    used_per_step: int  # gradients that are stored anew
    shapes: tuple[Shape, ...]  # of the unused ones
    device_rows: Rows  # work that is done for them alone
    host_rows: Rows  # nodes of the backward pass that run for them alone, outermost
    surely: bool  # the shapes of what the optimizer steps say so, too
    beside_rows: Rows  # of a caller's backward pass, half of which is for them as a rule
    calls: int  # of modules in a step, whose whole backward pass runs for them alone


@dataclass(frozen=True)
class NotTold:
    """Why it does not show which gradients are used."""

    why: str
    lacks_shapes: bool = False


@once_per_trace
def unused_gradients(trace: Trace) -> UnusedGradients | NotTold | None:
    """The gradients that are added to in each step while others are stored anew; None: none is."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None:
        return None
    stored = np.flatnonzero(
        rows_named(trace, host, lambda name: name == _ACCUMULATES)
        & (host["kind"] == HostKind.OPERATOR)
    )
    step = judged_steps(trace).step_of(host["start_ns"][stored])
    stored, step = stored[step >= 0], step[step >= 0]
    adds = _adds(trace)[stored]
    if not adds.any():
        return None
    steps = len(judged_steps(trace))
    if steps < 2 or len(distinct(step)) < steps or not _optimizer_steps(trace):
        return NotTold("the recording does not show an optimizer step in each of three steps")
    if (ops["kind"] == DeviceKind.COLLECTIVE).any():
        return NotTold("ranks share their gradients, and how they keep them does not show")
    if not host.known("shapes")[stored].all():
        return NotTold("shapes were not recorded", lacks_shapes=True)
    return _told(trace, stored, step, adds)


def _told(trace: Trace, stored: Rows, step: Ints, adds: Mask) -> UnusedGradients | NotTold | None:
    host, steps = trace.host_ops, len(judged_steps(trace))
    assert host is not None
    shape = host["shapes"][stored].astype(np.int64)
    added, anew = (_each_step(shape[which], step[which], steps) for which in (adds, ~adds))
    if added is None or anew is None:
        return NotTold("not every step adds to the same gradients")
    # Of a step that runs backward several times, all but the first pass add to every gradient.
    if not any(one not in added for one in anew):
        return NotTold("each gradient is added to: passes of one step, or zeros that stay")
    if not added:
        return None
    taken = stepped_tensors(trace)
    shapes = {one: _shape(trace, one) for one in added}
    surely = bool(taken)
    if not surely and _one_drops(trace):
        taken = {_shape(trace, one): float(many) for one, many in anew.items()}
    if any(taken.get(_shape(trace, one), 0) < many for one, many in anew.items()):
        return NotTold("which tensors the optimizer steps was not recorded")
    if any(taken.get(shapes[one], 0) > anew.get(one, 0) for one in added):
        return NotTold("an optimizer steps gradients that are added to")
    wanted = stored[~adds]
    begins = np.zeros(steps, np.int64)
    np.maximum.at(begins, step[~adds], host.end_ns[wanted])
    nodes = _nodes_after(trace, begins) | _inside(trace, stored[adds])
    mine = np.append(nodes, False)[_launchers(trace)]
    alone = {shapes[one] for one in added if one not in anew}
    mine |= _weight_gradients(trace, alone)
    branches = branches_for_nothing(trace, alone)
    if branches is not None:
        mine[branches.device_rows] = True
        nodes[branches.host_rows] = True
    return UnusedGradients(
        per_step=sum(added.values()),
        used_per_step=sum(anew.values()),
        shapes=tuple(s for one in added if (s := shapes[one]) is not None),
        device_rows=np.flatnonzero(mine & device_ops_in_steps(trace)),
        host_rows=np.flatnonzero(nodes & ~np.append(nodes, False)[parents(host)]),
        surely=surely,
        beside_rows=NOTHING if branches is None else branches.beside_rows,
        calls=0 if branches is None else round(branches.calls / steps),
    )


def _adds(trace: Trace) -> Mask:
    """Host rows inside which device work adds, and the rows around these."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    by = launching_operators(trace)
    named = np.append(rows_named(trace, host, lambda name: name in _ADDS), False)
    accumulates = rows_named(trace, host, lambda name: name == _ACCUMULATES)
    around = np.append(nearest(parents(host), accumulates), len(host))[by[named[by]]]
    found = np.zeros(len(host) + 1, np.bool_)
    found[around] = True
    return found[:-1]


def _each_step(shape: Ints, step: Ints, steps: int) -> dict[int, int] | None:
    """How many of each shape a step has; None where steps differ."""
    found = [Counter(shape[step == one].tolist()) for one in range(steps)]
    return dict(found[0]) if all(one == found[0] for one in found) else None


def _optimizer_steps(trace: Trace) -> bool:
    """Whether each judged step has an optimizer step, and there are three with the one before."""
    host = trace.host_ops
    assert host is not None
    mine = _optimizers(trace)
    inside = np.append(nearest(parents(host), mine), len(host))[parents(host)] < len(host)
    start = host["start_ns"][mine & ~inside]
    found = judged_steps(trace).step_of(start)
    each = len(distinct(found[found >= 0])) == len(judged_steps(trace))
    return each and len(start) >= FEWEST_STEPS


def _one_drops(trace: Trace) -> bool:
    """Whether one optimizer steps once in each judged step and drops its gradients, and no node
    runs several times before: then gradients that stay are not its own. Lists of tensors are
    recorded without their shapes in most programs."""
    host, windows = trace.host_ops, judged_steps(trace)
    assert host is not None
    chain, mine = parents(host), _optimizers(trace)
    inside = np.append(nearest(chain, mine), len(host))[chain] < len(host)
    steps = windows.step_of(host["start_ns"][mine & ~inside])
    dropping = _optimizers(trace, _ZEROES)
    zeroes = rows_named(trace, host, lambda name: name.endswith(("zero_", "fill_")))
    drops = windows.step_of(host["start_ns"][dropping])
    return (
        np.bincount(steps[steps >= 0], minlength=len(windows)).tolist() == [1] * len(windows)
        and len(distinct(drops[drops >= 0])) == len(windows)
        and not (within(chain, dropping)[:-1] & zeroes).any()
        and backward_runs(trace) is None
    )


def _optimizers(trace: Trace, of: str = _OPTIMIZER) -> Mask:
    host = trace.host_ops
    assert host is not None
    named = rows_named(trace, host, lambda name: name.startswith(of))
    result: Mask = named & (host["kind"] == HostKind.ANNOTATION)
    return result


def stepped_tensors(trace: Trace) -> dict[Shape | None, float]:
    """Tensors of each shape that an optimizer step has to do with, as far as lists were recorded.

    By its operator with most of them: several operators pass over the same parameters.
    """
    host, steps = trace.host_ops, max(len(judged_steps(trace)), 1)
    assert host is not None
    inside = within(parents(host), _optimizers(trace))[:-1]
    inside &= (host["kind"] == HostKind.OPERATOR) & host.known("shapes")
    inside &= judged_steps(trace).step_of(host["start_ns"]) >= 0
    counts: dict[Shape | None, Counter[int]] = {}
    for row in np.flatnonzero(inside).tolist():
        given = input_shapes(trace.text(host, "shapes", row) or "") or ()
        first = given[0] if given else None
        if not first:
            continue
        for one in first if isinstance(first[0], tuple) else (first,):
            counts.setdefault(one, Counter())[int(host["name"][row])] += 1
    return {shape: max(of.values()) / steps for shape, of in counts.items()}


def _shape(trace: Trace, name: int) -> Shape | None:
    given = input_shapes(trace.names[name]) or (None,)
    return given[0]  # type: ignore[return-value]


def _nodes_after(trace: Trace, after_ns: Ints) -> Mask:
    """Rows of the backward pass that begin later in their step than ``after_ns``."""
    host = trace.host_ops
    assert host is not None
    backward = within(parents(host), backward_nodes(trace))[:-1]
    step = judged_steps(trace).step_of(host["start_ns"])
    later: Mask = backward & (step >= 0) & (host["start_ns"] >= after_ns[np.maximum(step, 0)])
    return later


def _inside(trace: Trace, rows: Rows) -> Mask:
    host = trace.host_ops
    assert host is not None
    return within_rows(parents(host), rows)[:-1]


def _launchers(trace: Trace) -> Rows:
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    found: Rows = ops.filled("host_op", len(host)).astype(np.intp)
    return found


def _weight_gradients(trace: Trace, unused: set[Shape | None]) -> Mask:
    """Work of the backward pass whose result has the shape of unused gradients alone: products,
    the part of a convolution that is for its weights, and the sums over these nodes' outputs, which
    are gradients of their biases."""
    host, calls = trace.host_ops, launched_calls(trace)
    assert host is not None
    at = np.append(nearest(parents(host), backward_nodes(trace)), len(host))[calls.operator]
    products = calls.where(lambda of: _is_product_for(of, unused))
    products &= category_of_device_ops(trace) == Category.GEMM
    filters = calls.where(lambda of: _is_convolution_for(of, unused)) & _for_weights(trace)
    mine: Mask = (products | filters) & (at < len(host))
    sums = calls.where(lambda of: of.call.name == "aten::sum") & (at < len(host))
    return mine | (sums & np.isin(at, distinct(at[mine])))


def _is_product_for(of: LaunchedCall, unused: set[Shape | None]) -> bool:
    left, right = of.call.shape(0), of.call.shape(1)
    if of.call.name != "aten::mm" or left is None or right is None:
        return False
    result = (left[0], right[-1])
    return result in unused or result[::-1] in unused


def _is_convolution_for(of: LaunchedCall, unused: set[Shape | None]) -> bool:
    """Inputs are the gradient of the output, the input and the weight."""
    return of.call.name == "aten::convolution_backward" and of.call.shape(2) in unused


def _for_weights(trace: Trace) -> Mask:
    """Device operations whose kernel computes gradients of a convolution's weights."""
    assert trace.device_ops is not None
    return rows_named(trace, trace.device_ops, lambda name: bool(_FOR_WEIGHTS.search(name)))
