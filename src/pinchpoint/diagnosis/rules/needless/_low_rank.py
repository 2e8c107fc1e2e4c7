"""Gradients of a weight that is a product of two narrow matrices, from shapes and the order of
nodes in the backward pass.

The product of the forward pass, ``b @ a`` of sizes (o, r) and (r, i), has a node that gets the
gradient of all of it. Right before that node, with nothing but factors, views and casts of that one
tensor in between, another product's node computes this gradient out of the layer's input and its
result's gradient. No parameter takes it: nothing else needs it.
"""

import re
from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import above, parents
from pinchpoint.analysis.host.attribution import backward_nodes, forward_rows
from pinchpoint.analysis.host.input_arguments import Shape, elements, tensor_shapes
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step, rows_in_steps
from pinchpoint.diagnosis.evidence.device_work import busiest_place
from pinchpoint.diagnosis.evidence.vain_work import Vain
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Rows, distinct
from pinchpoint.trace.run_values import ProductOrder, VainWork

# As of chains that a run sees (``capture.flow.orders``): what is left of the FLOPs at most.
MOST_LEFT_RATIO = 0.7
_PRODUCT = regex(r"(Mm|Addmm)Backward\d*$")
# What a gradient passes through on its way, if it is the only tensor that they were given.
_ONE_TENSOR = regex(
    r"(T|Transpose|Permute|View|UnsafeView|Reshape|Alias|Mul|Div|Neg|ToCopy|Clone)Backward\d*$"
)
_SUM = regex(r"(Add|Sub)Backward\d*$")
_TAKES = regex(r"AccumulateGrad$")
_MM = "aten::mm"


@dataclass(frozen=True)
class _Chain:
    rows: tuple[int, ...]  # operators of the backward pass
    forward: int  # the product that is differentiated
    tokens: int
    size: tuple[int, int, int]  # o, r, i

    @property
    def flops(self) -> int:
        """Of the gradient of the whole, and of both matrices out of it."""
        o, r, i = self.size
        return 2 * o * i * (self.tokens + 2 * r)

    @property
    def flops_left(self) -> int:
        """Of the same out of the layer's input and its result's gradient, the narrow side first."""
        o, r, i = self.size
        return 4 * self.tokens * r * (o + i)

    @property
    def elements_left(self) -> int:
        """That these four products read and write."""
        o, r, i = self.size
        return 2 * (self.tokens + r) * (o + i) + 4 * self.tokens * r


def low_rank_gradients(trace: Trace) -> tuple[ProductOrder, Vain] | None:
    """What the gradients of such weights take in the judged steps, and would; None without any."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or not host.known("shapes").any():
        return None
    chains = [one for one in _chains(trace) if one.flops_left <= MOST_LEFT_RATIO * one.flops]
    if not chains:
        return None
    rows = np.array(sorted(row for one in chains for row in one.rows), np.intp)
    device_rows: Rows = np.zeros(0, np.intp)
    if ops is not None:
        inside = np.zeros(len(host) + 1, np.bool_)
        inside[rows] = True
        launched = inside[ops.filled("host_op", len(host))]
        device_rows = np.flatnonzero(launched & device_ops_in_steps(trace))
    forward = np.array([one.forward for one in chains], np.intp)
    order = ProductOrder(
        *(
            round(per_step(trace, sum(of)))
            for of in (
                [one.flops for one in chains],
                [one.flops_left for one in chains],
                [4 for _ in chains],
                [one.elements_left for one in chains],
            )
        )
    )
    times = round(per_step(trace, len(rows)))
    work = VainWork("order", (), (), True, times, None, None, 1.0, order=order)
    place = busiest_place(trace, forward, np.ones(len(forward), np.int64))[0]
    host_ns = round(per_step(trace, int(host["duration_ns"][rows].sum())))
    device_ns = 0
    if ops is not None:
        device_ns = round(per_step(trace, int(ops["duration_ns"][device_rows].sum())))
    return order, Vain(work, rows, rows, device_rows, host_ns, device_ns, _MM, place)


def _chains(trace: Trace) -> Iterator[_Chain]:
    host = trace.host_ops
    assert host is not None
    backward, in_steps = backward_nodes(trace), rows_in_steps(trace, host)
    outer = backward & (above(parents(host), backward) == len(host)) & in_steps
    nodes, forward = np.flatnonzero(outer), forward_rows(trace)
    for thread in distinct(host["thread"][nodes]).tolist():
        mine = nodes[host["thread"][nodes] == thread]
        mine = mine[np.argsort(host["start_ns"][mine], kind="stable")].tolist()
        for at, node in enumerate(mine):
            size = _narrow(trace, int(forward[node])) if _is(trace, node, _PRODUCT) else None
            if size is not None:
                found = _before(trace, mine[:at], size)
                if found is not None and _is_of_parameters(trace, mine[at + 1 :], size):
                    tokens, rows = found
                    rows = (*rows, *_products(trace, node))
                    yield _Chain(rows, int(forward[node]), tokens, size)


def _before(
    trace: Trace, nodes: list[int], size: tuple[int, int, int]
) -> tuple[int, tuple[int, ...]] | None:
    """The dimension that the gradient is summed over, and the operators that gave it."""
    ends, forward = (size[0], size[2]), forward_rows(trace)
    rows: list[int] = []
    for node in reversed(nodes):
        if _is(trace, node, _PRODUCT):
            for row in _products(trace, node):
                a, b = _shapes(trace, row)
                if (a[0], b[1]) in (ends, ends[::-1]) and min(*ends, a[1]) > size[1]:
                    return a[1], (row, *rows)
            return None
        if _is(trace, node, _TAKES):
            if _taken(trace, node) in (0, ends[0] * ends[1]):
                return None
            continue  # of a bias, say
        given = _shapes(trace, int(forward[node]))
        if not given:
            return None
        if not any(elements(shape) == ends[0] * ends[1] for shape in given):
            continue  # of the layer's input
        passes = len(given) == 1 and _is(trace, node, _ONE_TENSOR)
        if not passes and not _is(trace, node, _SUM):
            return None
        rows += _computed(trace, node)
    return None


def _is_of_parameters(trace: Trace, nodes: list[int], size: tuple[int, int, int]) -> bool:
    """Whether the gradients of both narrow matrices go to parameters, and that of all to none.

    Autograd hands a gradient to its parameter as soon as it is there. What is narrow beside an
    activation has a product's node of its own.
    """
    o, r, i = size
    taken = []
    for node in nodes:
        if _is(trace, node, _PRODUCT):
            break
        if _is(trace, node, _TAKES):
            taken.append(_taken(trace, node))
    both = sorted(one for one in taken if one in (o * r, r * i)) == sorted((o * r, r * i))
    return both and o * i not in taken


def _taken(trace: Trace, node: int) -> int:
    """Elements of the gradient that a parameter takes; 0 where that is not known."""
    shapes = _shapes(trace, node) or _shapes(trace, node + 1)
    return elements(shapes[0]) if len(shapes) == 1 else 0


def _narrow(trace: Trace, row: int) -> tuple[int, int, int] | None:
    """Outer, inner and outer size of a product whose result is larger than what it is made of."""
    shapes = _shapes(trace, row)[-2:]
    if len(shapes) < 2 or any(len(shape) != 2 for shape in shapes):
        return None
    (o, r), (_, i) = shapes
    return (o, r, i) if r < min(o, i) else None


def _products(trace: Trace, node: int) -> list[int]:
    return [row for row in _computed(trace, node) if _name(trace, row) == _MM]


_COMPUTES = frozenset((_MM, "aten::mul", "aten::div", "aten::neg", "aten::_to_copy", "aten::clone"))


def _computed(trace: Trace, node: int) -> list[int]:
    """Operators that a node runs and that compute something."""
    host = trace.host_ops
    assert host is not None
    end, found, row = host["start_ns"][node] + host["duration_ns"][node], [], node + 1
    while row < len(host) and host["start_ns"][row] < end:
        if host["thread"][row] == host["thread"][node] and _name(trace, row) in _COMPUTES:
            found.append(row)
        row += 1
    return found


def _shapes(trace: Trace, row: int) -> tuple[Shape, ...]:
    """Of the tensors with dimensions that an operator was given."""
    host = trace.host_ops
    assert host is not None
    if row >= len(host) or not host.known("shapes")[row]:
        return ()
    return tensor_shapes(trace.names[int(host["shapes"][row])])


def _name(trace: Trace, row: int) -> str:
    host = trace.host_ops
    assert host is not None
    return trace.names[int(host["name"][row])]


def _is(trace: Trace, node: int, pattern: re.Pattern[str]) -> bool:
    return pattern.search(_name(trace, node)) is not None
