"""Which gradients a function of the program's own computes and nobody takes.

A backward node hands its results to the nodes behind it, which have them as inputs, or to a sum of
several gradients of one tensor. PyTorch's own nodes compute what is asked for alone; an
``autograd.Function`` computes what its author wrote, and autograd drops what no input needs. So the
weight gradients of such nodes are counted, and what takes tensors of their size.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents, within_rows
from pinchpoint.analysis.host.attribution import backward_nodes
from pinchpoint.analysis.host.input_arguments import Shape, elements, input_shapes, tensor_shapes
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import HostKind, Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask, Rows, distinct
from pinchpoint.trace.names import rows_named

# PyTorch numbers the nodes of its own operators (``MmBackward0``); that of a function written in
# Python is named as its class. A compiler's holds a whole graph, a checkpoint's many nodes.
_OF_PYTHON = regex(r"^(?!CompiledFunction|Checkpoint)\w*[A-Za-z_]Backward$")
_OF_TORCH = regex(r"^\w+Backward\d+$")
_ENGINE, _STORES = "autograd::engine::", "torch::autograd::AccumulateGrad"
_SUMS = ("aten::add", "aten::add_")
_PRODUCTS = ("aten::mm", "aten::matmul", "aten::linear", "aten::addmm")
# What hands a tensor on as a whole; all else computes with it or takes a part.
_HANDS_ON = regex(
    r"^aten::(to|_to_copy|copy_|clone|contiguous|detach|empty\w*|t|transpose|permute|view|reshape"
    r"|_reshape_alias|_unsafe_view|flatten|unflatten|as_strided|alias|result_type)$"
)


@dataclass(frozen=True, eq=False)
class DroppedGradients:
    """Weight gradients that nothing takes."""

    shapes: tuple[Shape, ...]  # of all of them, once each
    operators: Rows  # of host_ops: the products, and casts of their results
    device_rows: Rows  # of device_ops, in the judged steps
    products: int  # in the judged steps
    node: str  # of the backward pass: the name of most of them


@dataclass(frozen=True)
class _Made:
    """A weight gradient."""

    row: int  # of host_ops: the product
    node: int  # of host_ops
    step: int
    shape: Shape
    casts: tuple[int, ...]  # of host_ops: of its result


@once_per_trace
def dropped_gradients(trace: Trace) -> DroppedGradients | None:
    """What is computed for nothing in nodes of the program's own; None: nothing shows."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None or not _stores_in_each_step(trace):
        return None
    own = _nodes(trace) & rows_named(trace, host, lambda name: bool(_OF_PYTHON.search(name)))
    made = _made(trace, own)
    if not made:
        return None
    of_torch = _nodes(trace) & rows_named(trace, host, lambda name: bool(_OF_TORCH.search(name)))
    made = sorted((*made, *_made(trace, of_torch)), key=lambda one: one.row)
    sizes = {elements(one.shape) for one in made}
    dropped = list(_not_taken(trace, made, _takers(trace, sizes)))
    # PyTorch's own nodes drop nothing: where theirs seem dropped, the program takes them itself.
    if not dropped or not all(own[one.node] for one in dropped):
        return None
    operators = np.array(sorted({row for one in dropped for row in (one.row, *one.casts)}), np.intp)
    inside = within_rows(parents(host), operators)[ops.filled("host_op", len(host))]
    names = [trace.text(host, "name", one.node) or "" for one in dropped]
    return DroppedGradients(
        shapes=tuple(dict.fromkeys(one.shape for one in dropped)),
        operators=operators,
        device_rows=np.flatnonzero(inside & device_ops_in_steps(trace)),
        products=len(dropped),
        node=max(names, key=names.count),
    )


def _stores_in_each_step(trace: Trace) -> bool:
    """Whether gradients are kept by autograd in each step, not handed to the program."""
    host, steps = trace.host_ops, judged_steps(trace)
    assert host is not None
    stores = rows_named(trace, host, lambda name: name == _STORES)
    found = steps.step_of(host["start_ns"][stores])
    return len(steps) > 0 and len(distinct(found[found >= 0])) == len(steps)


def _nodes(trace: Trace) -> Mask:
    """Nodes of the backward pass with their inputs: not what the engine does around them."""
    host = trace.host_ops
    assert host is not None
    engine = rows_named(trace, host, lambda name: name.startswith(_ENGINE))
    found: Mask = backward_nodes(trace) & ~engine & host.known("shapes")
    return found


def _made(trace: Trace, nodes: Mask) -> list[_Made]:
    """The weight gradients of these nodes, in order."""
    host = trace.host_ops
    assert host is not None
    if not nodes.any():
        return []
    at = nearest(parents(host), nodes)
    products = rows_named(trace, host, lambda name: name == "aten::mm") & (at < len(host))
    rows = np.flatnonzero(products & (host["kind"] == HostKind.OPERATOR))
    step = judged_steps(trace).step_of(host["start_ns"][rows])
    found = (
        _weight_gradient(trace, host, row, int(at[row]), in_step)
        for row, in_step in zip(rows[step >= 0].tolist(), step[step >= 0].tolist(), strict=True)
    )
    return [one for one in found if one is not None]


def _weight_gradient(trace: Trace, host: Table, row: int, node: int, step: int) -> _Made | None:
    """A product that adds up over all rows of the gradient that its node is given, unless the node
    computes with the result."""
    left, right, *more = (*(_shapes(trace, host, row)), (), ())
    given = next((s for s in _shapes(trace, host, node) if s), ())
    # With a third matrix, the result is written into one that is there.
    if len(left) != 2 or len(right) != 2 or any(more) or not given:
        return None
    if left[1] * given[-1] != elements(given):
        return None
    size, casts = left[0] * right[1], list[int]()
    until = int(np.searchsorted(host["start_ns"], host.end_ns[node]))
    for other in range(row + 1, until):
        if host["kind"][other] != HostKind.OPERATOR or host["start_ns"][other] < host.end_ns[row]:
            continue
        if host["thread"][other] != host["thread"][node]:
            continue
        if size not in map(elements, filter(None, _shapes(trace, host, other))):
            continue
        name = trace.text(host, "name", other) or ""
        if name in _PRODUCTS:
            casts.clear()  # the weight is used, and what came before was for it
        elif _HANDS_ON.search(name):
            casts.append(other)
        else:
            return None
    return _Made(row, node, step, (left[0], right[1]), tuple(casts))


def _shapes(trace: Trace, host: Table, row: int) -> tuple[Shape, ...]:
    """Of the inputs that are tensors or numbers."""
    given = input_shapes(trace.text(host, "shapes", row) or "") or ()
    alone = (s for s in given if s is not None and not (s and isinstance(s[0], tuple)))
    return tuple(alone)  # type: ignore[arg-type]


def _takers(trace: Trace, sizes: set[int]) -> dict[tuple[int, int], Ints]:
    """When a tensor of such a size is taken, by step and size: by a node, or by a sum of two."""
    host = trace.host_ops
    assert host is not None
    nodes = _nodes(trace)
    sums = rows_named(trace, host, lambda name: name in _SUMS) & ~nodes
    up = parents(host)
    engine = np.append(rows_named(trace, host, lambda name: name.startswith(_ENGINE)), False)
    rows = np.flatnonzero(nodes | (sums & engine[up]))
    step = judged_steps(trace).step_of(host["start_ns"][rows])
    found: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for row, in_step in zip(rows.tolist(), step.tolist(), strict=True):
        given = tensor_shapes(trace.text(host, "shapes", row) or "")
        taken = given[:1] if sums[row] else given  # two become one
        for shape in taken:
            if elements(shape) in sizes:
                found[in_step, elements(shape)].append(int(host["start_ns"][row]))
    return {key: np.array(times, np.int64) for key, times in found.items()}


def _not_taken(
    trace: Trace, made: Sequence[_Made], takers: dict[tuple[int, int], Ints]
) -> Iterator[_Made]:
    """Those that nothing takes. A gradient is taken at once or later: of a size of which some are
    taken, those are left between which and the next one nothing takes one, if they are as many as
    there are too many."""
    host = trace.host_ops
    assert host is not None
    groups: defaultdict[tuple[int, int], list[_Made]] = defaultdict(list)
    for one in made:
        groups[one.step, elements(one.shape)].append(one)
    for key, group in groups.items():
        taken = takers.get(key, np.zeros(0, np.int64))
        begun = host["start_ns"][[one.row for one in group]]
        after = np.searchsorted(begun, taken, "right") - 1
        counts = np.bincount(after[after >= 0], minlength=len(group))
        left = [one for one, many in zip(group, counts.tolist(), strict=True) if not many]
        if len(left) == len(group) - int(counts.sum()):
            yield from left
