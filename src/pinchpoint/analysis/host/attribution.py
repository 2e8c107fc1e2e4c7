"""From device time back to the host rows, and the forward operators, that caused it."""

import re

import numpy as np

from pinchpoint.analysis.host.ancestry import above, nearest, operators_around, parents
from pinchpoint.regex import regex
from pinchpoint.trace import HostKind, Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, KeptRows, Mask, Rows
from pinchpoint.trace.names import rows_named

# Autograd names its nodes so; recordings of before 2022 lack the prefix and keep the suffix.
_BACKWARD = regex(r"^autograd::engine::evaluate_function|Backward\d*$|AccumulateGrad$")


def launched_ns(trace: Trace, ops: Mask | None = None) -> Ints:
    """Device time that each host row launched itself: the sum of durations, per row.

    Counts rows of ``device_ops`` in the mask ``ops``, or all. What cannot be traced to a host
    row is left out. Sums count overlapping operations twice, as a cost of each operator must.
    """
    return _spread(trace, trace.device_ops["duration_ns"] if trace.device_ops else None, ops)


def launched_count(trace: Trace, ops: Mask | None = None) -> Ints:
    """Device operations that each host row launched itself."""
    return _spread(
        trace, np.ones(len(trace.device_ops), np.int64) if trace.device_ops else None, ops
    )


def _spread(trace: Trace, values: Ints | None, ops: Mask | None) -> Ints:
    total = np.zeros(len(trace.host_ops) if trace.host_ops is not None else 0, np.int64)
    if values is None or trace.device_ops is None or not len(total):
        return total
    linked = trace.device_ops.known("host_op")
    if ops is not None:
        linked = linked & ops
    np.add.at(total, trace.device_ops["host_op"][linked], values[linked])
    return total


@once_per_trace
def launching_operators(trace: Trace) -> Rows:
    """The innermost operator around the launch of each row of ``device_ops``.

    ``len(host_ops)`` where there is none. Graph launches and the like come straight from Python.
    """
    ops, host = trace.device_ops, trace.host_ops
    if ops is None:
        return np.zeros(0, np.int64)
    if host is None or not len(host):
        return np.zeros(len(ops), np.int64)
    found: Rows = operators_around(trace)[ops.filled("host_op", len(host))]
    return found


@once_per_trace
def backward_nodes(trace: Trace) -> Mask:
    """Host rows that are nodes of the backward pass, one a forward operator."""
    host = trace.host_ops
    if host is None:
        return np.zeros(0, np.bool_)
    nodes: Mask = _named(trace, host, _BACKWARD) & (host["kind"] == HostKind.OPERATOR)
    return nodes


@once_per_trace
def forward_rows(trace: Trace) -> KeptRows:
    """For each host row: itself, or in the backward pass the forward operator it differentiates.

    ``len(host_ops)`` where a backward node has no known forward operator. The two share the
    autograd sequence number; of several forward operators with that number the innermost made
    the node. Numbers are counted per thread, so a number that was used on several forward
    threads is not resolved.
    """
    host = trace.host_ops
    if host is None or not len(host):
        return np.zeros(0, np.int32)
    none = len(host)
    backward = backward_nodes(trace)
    node = nearest(parents(host), backward)
    forward = np.append(_matching_forward(host, backward, node == none), none)
    return np.where(node == none, np.arange(none), forward[node]).astype(np.int32)


def _matching_forward(host: Table, backward: Mask, outside: Mask) -> Rows:
    """The forward row of each backward node, by sequence number."""
    none = len(host)
    known = host.known("sequence") & (host["kind"] == HostKind.OPERATOR)
    givers = np.flatnonzero(known & outside)
    sequence = host["sequence"]
    givers = givers[np.argsort(sequence[givers], kind="stable")]  # by number, then by start
    numbers = sequence[givers]
    found = np.full(none, none, np.int64)
    takers = np.flatnonzero(backward & host.known("sequence"))
    if not len(givers) or not len(takers):
        return found
    first = np.searchsorted(numbers, sequence[takers], "left")
    after = np.searchsorted(numbers, sequence[takers], "right")
    last = np.maximum(after - 1, 0)
    threads = host["thread"][givers]
    changes = np.concatenate(([0], np.cumsum(threads[1:] != threads[:-1])))
    alone = changes[np.minimum(first, len(givers) - 1)] == changes[last]
    ok = (after > first) & alone
    found[takers[ok]] = givers[last[ok]]
    return found


def _named(trace: Trace, host: Table, pattern: re.Pattern[str]) -> Mask:
    return rows_named(trace, host, lambda name: pattern.search(name) is not None)


# ------------------------------------------------------------------------------------------------
# Which work is the forward pass done again inside the backward pass (activation checkpointing).
#
# Autograd numbers an operator only while it records gradients. Inside a node of the backward pass
# it does not, unless a checkpoint runs its part of the forward pass again, or the pass is itself
# differentiated (create_graph=True). A checkpoint numbers the operators of the forward pass alone:
# the node's own are not numbered beside them, or run in nodes of their own inside it (reentrant
# checkpoints). In a pass that is differentiated, all that the node runs is numbered.


@once_per_trace
def recomputed_rows(trace: Trace) -> Mask:
    """Rows of ``host_ops`` that are recomputation."""
    host = trace.host_ops
    if host is None or not len(host):
        return np.zeros(0, np.bool_)
    none, up = len(host), parents(host)
    backward = backward_nodes(trace)
    numbered = host.known("sequence") & (host["kind"] == HostKind.OPERATOR) & ~backward
    inside = above(up, backward) != none
    forward_again = numbered & inside & ~_under(up, recording_nodes(trace))
    decides = np.append(nearest(up, backward | forward_again), none)[:-1]
    answer: Mask = np.append(forward_again, False)[decides]
    return answer


@once_per_trace
def recording_nodes(trace: Trace) -> Mask:
    """Outermost backward nodes that record nodes themselves: of passes that are differentiated."""
    host = trace.host_ops
    if host is None or not len(host):
        return np.zeros(0, np.bool_)
    none, up = len(host), parents(host)
    backward, operators = backward_nodes(trace), host["kind"] == HostKind.OPERATOR
    makes = _named(trace, host, _MAKES_TENSORS)
    outermost = _outermost(up, backward)
    node = np.append(outermost, none)[np.append(above(up, operators), none)[:-1]]
    called = operators & ~backward & ~makes & np.append(backward, False)[above(up, operators)]
    known, around = host.known("sequence"), above(up, backward)
    evaluates = np.append(_named(trace, host, _EVALUATES), False)
    nested = backward & (around != none) & ~(evaluates[around] & ~evaluates[:-1])
    all_numbered = _holds(none, node[called & known]) & ~_holds(none, node[called & ~known])
    found: Mask = all_numbered & ~_holds(none, outermost[nested])
    return found


# Operators without a tensor as input are never numbered.
_MAKES_TENSORS = regex(r"^aten::(empty|zeros|ones|full|arange|eye|scalar_tensor)(_strided)?$")
_EVALUATES = regex(r"^autograd::engine::evaluate_function")


def _outermost(up: Rows, wanted: Mask) -> Rows:
    """The outermost wanted row that is or encloses each row; ``len(up)`` where none does."""
    top = wanted & (above(up, wanted) == len(up))
    return nearest(up, top)


def _under(up: Rows, wanted: Mask) -> Mask:
    found: Mask = nearest(up, wanted) != len(up)
    return found


def _holds(rows: int, of: Rows) -> Mask:
    found: Mask = np.bincount(of, minlength=rows + 1)[:rows] > 0
    return found


@once_per_trace
def called_by_operators(trace: Trace) -> Mask:
    """Runtime calls made by operators and nodes of the backward pass, not by the program itself."""
    calls, host = trace.api_calls, trace.host_ops
    assert calls is not None
    if host is None or not len(host):
        return np.zeros(len(calls), np.bool_)
    inside: Mask = operators_around(trace)[calls.filled("host_op", len(host))] < len(host)
    return inside
