"""Copies that an operator makes of its weights before it computes: casts, layouts, flat buffers.

A copy is told by the inputs of the operator around it: it has as many elements as one of the
weights and not as many as the data. What was copied is known by size alone; in a module it is
known by the place of the copy within one call of the module, too.
"""

from functools import lru_cache

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents, within
from pinchpoint.analysis.host.attribution import backward_nodes
from pinchpoint.analysis.host.input_arguments import elements, input_shapes, tensor_shapes
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask, Rows
from pinchpoint.trace.names import rows_named

# Operators whose first input is data and whose others are weights.
_WITH_WEIGHTS = regex(r"^aten::(linear|\w*conv\w*|\w*rnn\w*|lstm|gru|rnn_\w+)$")


@dataclass(frozen=True, eq=False)
class WeightCopies:
    """Copies of weights that the judged steps made; one element for each."""

    rows: Rows  # of device_ops, in their order
    call: Rows  # row of host_ops: the operator whose weights they are
    elements: Ints
    casts: Mask  # to another type
    surely: Mask  # the data of the operator has another size


@once_per_trace
def weight_copies(trace: Trace) -> WeightCopies:
    """The copies of the forward pass; none where shapes were not recorded."""
    ops, host, calls = trace.device_ops, trace.host_ops, launched_calls(trace)
    nothing = np.zeros(0, np.intp)
    if ops is None or host is None or not len(host):
        return WeightCopies(nothing, nothing, nothing, nothing > 0, nothing > 0)
    chain = parents(host)
    users = rows_named(trace, host, lambda name: _WITH_WEIGHTS.match(name) is not None)
    users &= host["kind"] == HostKind.OPERATOR
    users &= nearest(chain, backward_nodes(trace)) == len(host)
    around = np.append(nearest(chain, users), len(host))[calls.operator]
    size = calls.numbers(_copied_elements)
    rows = np.flatnonzero(device_ops_in_steps(trace) & ~np.isnan(size) & (around < len(host)))
    text = host.filled("shapes", -1)[around[rows]].tolist()
    sizes = [_sizes(trace.names[at] if at >= 0 else "") for at in text]
    count = size[rows].astype(np.int64)
    mine = np.array(
        [n in of.weights for n, of in zip(count.tolist(), sizes, strict=True)], np.bool_
    )
    surely = count != np.array([of.data for of in sizes], np.int64)
    rows, count, surely = rows[mine], count[mine], surely[mine]
    casts = calls.where(lambda of: of.call.dtype(0) != of.call.dtype(1))[rows]
    return WeightCopies(rows, around[rows].astype(np.intp), count, casts, surely)


def _copied_elements(of: LaunchedCall) -> float | None:
    shape = of.call.shape(0)
    return elements(shape) if of.call.name == "aten::copy_" and shape else None


@dataclass(frozen=True)
class _Sizes:
    """Elements of the inputs of an operator."""

    data: int
    weights: frozenset[int]


@lru_cache(maxsize=1 << 12)
def _sizes(shapes: str) -> _Sizes:
    inputs, flat = input_shapes(shapes) or (), tensor_shapes(shapes)
    if not inputs or not flat or inputs[0] != flat[0]:
        return _Sizes(0, frozenset())
    return _Sizes(elements(flat[0]), frozenset(elements(shape) for shape in flat[1:]))


# ------------------------------------------------------------------------------------------------
# Which of them do again what was done before in the same pass.


@once_per_trace
def cast_again(trace: Trace) -> Mask:
    """Of each of the ``weight_copies`` whether it casts a weight that was cast before.

    The same weight: the same module, the same size, and at the same place among the casts of one
    call of the module. Before: in the same step, and since the last node of a backward pass, as
    each micro-batch and each recomputation has reason to cast anew.
    """
    found, host = weight_copies(trace), trace.host_ops
    if host is None or not len(found.rows):
        return np.zeros(0, np.bool_)
    module = nearest(parents(host), host["kind"] == HostKind.MODULE)[found.call]
    known = found.casts & found.surely & (module < len(host))
    name = host["name"][np.minimum(module, len(host) - 1)].astype(np.int64)
    begun = host["start_ns"][found.call]
    passes = np.searchsorted(np.sort(host["start_ns"][backward_nodes(trace)]), begun)
    step = judged_steps(trace).step_of(begun)
    place = _ordinal(np.stack((module, found.elements, known)))
    again = _ordinal(np.stack((name, found.elements, place, step, passes, known))) > 0
    result: Mask = again & known
    return result


@once_per_trace
def cast_of_frozen_weights(trace: Trace) -> Mask:
    """Of each of the ``weight_copies`` whether it is a cast of a size of weight that two steps
    cast, and back through which no gradient of that size flows: nothing changes such weights."""
    found, host = weight_copies(trace), trace.host_ops
    casts = found.casts & found.surely
    if host is None or not casts.any():
        return np.zeros(len(found.rows), np.bool_)
    casts &= ~np.isin(found.elements, _sizes_of_gradients(trace))
    step = judged_steps(trace).step_of(host["start_ns"][found.call])
    pairs = np.unique(np.stack((found.elements[casts], step[casts])), axis=1)
    sizes, steps = np.unique(pairs[0], return_counts=True)
    result: Mask = casts & np.isin(found.elements, sizes[steps > 1])
    return result


def _sizes_of_gradients(trace: Trace) -> Ints:
    """Elements of what the backward passes cast back to the type of the weights."""
    host, calls = trace.host_ops, launched_calls(trace)
    assert host is not None
    node = rows_named(trace, host, lambda name: name.endswith("ToCopyBackward0"))
    inside = within(parents(host), node)[calls.operator]
    size = calls.numbers(_copied_elements)
    return np.unique(size[inside & ~np.isnan(size)].astype(np.int64))


def _ordinal(keys: Ints) -> Ints:
    """How many earlier columns are equal; ``keys`` has one row a key."""
    _, group = np.unique(keys, axis=1, return_inverse=True)
    group = group.reshape(-1)
    order = np.argsort(group, kind="stable")
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    length = np.diff(np.append(first, len(order)))
    out = np.empty(len(group), np.int64)
    out[order] = np.arange(len(order)) - np.repeat(first, length)
    return out
