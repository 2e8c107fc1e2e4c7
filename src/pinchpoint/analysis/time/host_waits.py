"""Calls in which the host waits for the device, and what it waited for."""

from enum import IntEnum

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.graph_captures import graph_captures
from pinchpoint.analysis.steps.in_steps import rows_in_steps
from pinchpoint.frozen import dataclass
from pinchpoint.trace import ApiKind, HostKind, MemoryKind, Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Codes, Ints, Mask, Rows
from pinchpoint.trace.intervals import contains
from pinchpoint.trace.names import rows_named

BLOCKING_H2D_BYTES = 64 * 1024  # CUDA: smaller copies from pageable memory return once staged
SMALL_READ_BYTES = 4_096  # a scalar or a handful of them


class WaitReason(IntEnum):
    """Why the host waited."""

    VALUE = 1  # a few values are read: .item(), bool(tensor), print
    SIZE = 2  # the shape of a result depends on data: nonzero, boolean masks, unique
    EXPLICIT = 3  # the program asked for a synchronisation
    COPY_TO_HOST = 4  # a large result is copied to the host
    COPY_TO_DEVICE = 5  # ordinary host memory is copied to the device
    INSIDE_OPERATOR = 6  # an operator or library synchronises for its own reasons
    MEMORY = 7  # device memory is given back to the driver
    GRAPH_CAPTURE = 8  # the framework is about to capture a graph, or builds it


ONE_ACT_NS = 2_000  # between a copy and its wait in one library; an interpreter takes longer
SIZE_OPERATORS = (
    "aten::nonzero",
    "aten::nonzero_numpy",
    "aten::masked_select",
    "aten::unique",
    "aten::_unique",
    "aten::_unique2",
    "aten::unique_consecutive",
    "aten::unique_dim",
    "aten::repeat_interleave",
    "aten::argwhere",
    "aten::bincount",
)
VALUE_OPERATORS = (
    "aten::item",
    "aten::_local_scalar_dense",
    "aten::is_nonzero",
    "aten::equal",
    "aten::allclose",
)
# They iterate until their own flags, which they copy to the host, say that it is enough.
_SOLVERS = ("aten::linalg_", "aten::_linalg_", "aten::cholesky", "aten::geqrf", "aten::ormqr")
READING = (*SIZE_OPERATORS, *VALUE_OPERATORS)
_HOST_MEMORY = (MemoryKind.PAGEABLE, MemoryKind.PINNED, MemoryKind.HOST)
SYNCHRONISING = (ApiKind.SYNC_DEVICE, ApiKind.SYNC_STREAM, ApiKind.SYNC_EVENT)


@dataclass(frozen=True, eq=False)
class Waits:
    """Waiting calls inside the judged steps; arrays have one element a call, in time order."""

    api_calls: Rows
    reason: Codes  # WaitReason
    took_ns: Ints
    host_op: Rows  # innermost enclosing row of host_ops; len(host_ops) for none
    bytes: Ints  # copied by the operator that waits; 0 where it copies nothing

    def rows(self, *reasons: WaitReason) -> Rows:
        """Positions in these arrays with one of the reasons."""
        return np.flatnonzero(np.isin(self.reason, reasons))


@once_per_trace
def host_waits(trace: Trace) -> Waits:
    """All calls inside the judged steps that can make the host wait for the device."""
    calls = trace.api_calls
    if calls is None or not len(calls):
        nothing = np.zeros(0, np.intp)
        return Waits(nothing, nothing.astype(np.uint8), nothing, nothing, nothing)
    copied = _copies(trace, calls)
    waiting = np.isin(calls["kind"], (*SYNCHRONISING, ApiKind.FREE))
    waiting |= (calls["kind"] == ApiKind.COPY) & copied.blocks
    rows = np.flatnonzero(waiting & rows_in_steps(trace, calls))
    around = _surroundings(trace, calls, rows)
    copy = _copy_before(calls, copied, rows)
    down, up = (_with_operator(size, around, copy) for size in (copied.down, copied.up))
    host_op = calls.filled("host_op", around.none)[rows].astype(np.intp)
    reason = _reasons(calls["kind"][rows], around, down, up)
    reason[contains(graph_captures(trace), calls["start_ns"][rows])] = WaitReason.GRAPH_CAPTURE
    return Waits(rows, reason, calls["duration_ns"][rows], host_op, np.maximum(down, up))


@dataclass(frozen=True, eq=False)
class _Around:
    """The operator around each waiting call; ``none`` is the position of no row."""

    none: int
    operator: Rows  # innermost operator
    value: Mask
    size: Mask
    solver: Mask  # the operator itself
    operator_of_call: Rows  # of every call of the trace


def _surroundings(trace: Trace, calls: Table, rows: Rows) -> _Around:
    host = trace.host_ops
    if host is None or not len(host):
        no = np.zeros(len(rows), np.bool_)
        nobody = np.zeros(len(calls), np.intp)
        return _Around(0, nobody[rows], no, no, no, nobody)
    none = len(host)
    chain = parents(host)
    is_operator = host["kind"] == HostKind.OPERATOR
    operator = np.append(nearest(chain, is_operator), none)

    def inside(names: tuple[str, ...]) -> Mask:
        wanted = rows_named(trace, host, names.__contains__)
        hit: Mask = np.append(nearest(chain, wanted & is_operator) < none, False)
        return hit

    solvers = rows_named(trace, host, lambda name: name.startswith(_SOLVERS))
    at = calls.filled("host_op", none)
    return _Around(
        none,
        operator[at[rows]],
        inside(VALUE_OPERATORS)[at[rows]],
        inside(SIZE_OPERATORS)[at[rows]],
        np.append(solvers, False)[operator[at[rows]]],
        operator[at],
    )


@dataclass(frozen=True, eq=False)
class _Copied:
    """For every call of the trace: bytes it copied, and whether it returns only when they moved."""

    down: Ints  # device to host
    up: Ints
    blocks: Mask
    ordinary: Mask  # memory of the host that is not page-locked


def _copies(trace: Trace, calls: Table) -> _Copied:
    ops = trace.device_ops
    down, up = np.zeros((2, len(calls)), np.int64)
    blocks, ordinary = np.zeros((2, len(calls)), np.bool_)
    if ops is None or not len(ops):
        return _Copied(down, up, blocks, ordinary)
    linked, call = ops.known("api_call"), ops["api_call"]
    source, target = ops.filled("from_memory", 0), ops.filled("to_memory", 0)
    size = ops.filled("bytes", 0)
    for bytes_of_call, side in ((down, target), (up, source)):
        chosen = linked & np.isin(side, _HOST_MEMORY)
        np.add.at(bytes_of_call, call[chosen], size[chosen])
    large = size > BLOCKING_H2D_BYTES
    pageable = (target == MemoryKind.PAGEABLE) | ((source == MemoryKind.PAGEABLE) & large)
    blocks[call[linked & pageable]] = True
    either = (target == MemoryKind.PAGEABLE) | (source == MemoryKind.PAGEABLE)
    ordinary[call[linked & either]] = True
    return _Copied(down, up, blocks, ordinary)


def _copy_before(calls: Table, copied: _Copied, rows: Rows) -> Rows:
    """The call itself; of a synchronisation that follows a copy of ordinary memory so closely that
    one function made both, that copy."""
    order = np.lexsort((calls["start_ns"], calls["thread"]))
    last, this = order[:-1], order[1:]
    close = calls["start_ns"][this] - calls.end_ns[last] <= ONE_ACT_NS
    close &= (calls["thread"][this] == calls["thread"][last]) & copied.ordinary[last]
    close &= np.isin(calls["kind"][this], SYNCHRONISING)
    found = np.arange(len(calls))
    found[this[close]] = last[close]
    return found[rows]


def _with_operator(size: Ints, around: _Around, copy: Rows) -> Ints:
    """Bytes that the operator around each waiting call copied: a copy and its sync are one act.

    A call outside operators speaks for itself, or for the copy that it ends.
    """
    per_operator = np.zeros(around.none + 1, np.int64)
    np.add.at(per_operator, around.operator_of_call, size)
    inside = around.operator < around.none
    total: Ints = np.where(inside, per_operator[around.operator], size[copy])
    return total


def _reasons(kind: Codes, around: _Around, down: Ints, up: Ints) -> Codes:
    reason = np.full(len(kind), WaitReason.INSIDE_OPERATOR, np.uint8)
    reason[around.operator == around.none] = WaitReason.EXPLICIT
    reason[up > 0] = WaitReason.COPY_TO_DEVICE
    reason[(down > 0) & (down <= SMALL_READ_BYTES)] = WaitReason.VALUE
    reason[down > SMALL_READ_BYTES] = WaitReason.COPY_TO_HOST
    reason[around.solver & (down <= SMALL_READ_BYTES)] = WaitReason.INSIDE_OPERATOR
    reason[around.value] = WaitReason.VALUE
    reason[around.size] = WaitReason.SIZE
    reason[kind == ApiKind.FREE] = WaitReason.MEMORY
    return reason
