"""Tensors that the host fills and then sends to the device: the filling, the wait before, the copy.

A function of the program that waits until a buffer was sent, fills it with an operator on the CPU
and sends it does one thing: without the operator on the CPU neither wait nor copy is needed. The
copy is of that tensor if it moves as many bytes as one of the operator's tensors has.
"""

import numpy as np

from pinchpoint.analysis.causal.computing import host_computing
from pinchpoint.analysis.costs import OperatorCall
from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.frames import Owner, owners
from pinchpoint.analysis.host.input_arguments import input_dtypes, input_shapes
from pinchpoint.frozen import dataclass
from pinchpoint.trace import ApiKind, DeviceKind, HostKind, MemoryKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Rows, distinct

_ON_HOST = (MemoryKind.PAGEABLE, MemoryKind.PINNED)


@dataclass(frozen=True, eq=False)
class Filled:
    """One element an operator on the CPU whose result is sent; rows of other tables in lists."""

    operator: Rows  # of host_ops
    read_bytes: Ints  # all its tensors
    uploads: tuple[Rows, ...]  # of device_ops
    waits: tuple[Rows, ...]  # of api_calls: before it in the same call of the function


@once_per_trace
def filled_slots(trace: Trace) -> Filled:
    """All of the judged steps."""
    host, ops, calls = trace.host_ops, trace.device_ops, trace.api_calls
    if not host or ops is None or calls is None:
        return Filled(np.zeros(0, np.intp), np.zeros(0, np.int64), (), ())
    none = len(host)
    user = np.append(nearest(parents(host), owners(trace) == Owner.USER), none)
    rows = distinct(host_computing(trace).row)
    rows = rows[rows < none]
    rows = rows[(host["kind"][rows] == HostKind.OPERATOR) & (user[rows] < none)]
    up = np.flatnonzero(
        (ops["kind"] == DeviceKind.COPY)
        & np.isin(ops.filled("from_memory", 0), _ON_HOST)
        & (ops.filled("to_memory", 0) == MemoryKind.DEVICE)
    )
    of_upload = user[ops.filled("host_op", none)[up]]
    sent_at = host["start_ns"][np.minimum(ops.filled("host_op", none)[up], none - 1)]
    events = np.flatnonzero(calls["kind"] == ApiKind.SYNC_EVENT)
    of_wait = user[calls.filled("host_op", none)[events]]
    found, read, uploads, waits = [], [], [], []
    for row in rows.tolist():
        sizes = _tensor_bytes(trace, row)
        mine = (of_upload == user[row]) & (sent_at >= host.end_ns[row])
        mine &= np.isin(ops.filled("bytes", 0)[up], sizes)
        if mine.any():
            before = (of_wait == user[row]) & (calls.end_ns[events] <= host["start_ns"][row])
            found.append(row)
            read.append(sum(sizes))
            uploads.append(up[mine])
            waits.append(events[before])
    return Filled(np.array(found, np.intp), np.array(read, np.int64), tuple(uploads), tuple(waits))


def _tensor_bytes(trace: Trace, row: int) -> list[int]:
    host = trace.host_ops
    assert host is not None
    shapes = input_shapes(trace.text(host, "shapes", row) or "")
    dtypes = input_dtypes(trace.text(host, "dtypes", row) or "")
    if shapes is None or dtypes is None:
        return []
    call = OperatorCall(trace.text(host, "name", row) or "", shapes, dtypes)
    return [size for i in call.tensors() if (size := call.bytes(i))]
