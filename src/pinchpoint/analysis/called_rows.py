"""The whole act that the program asked for, seen from any row inside it.

A wait is recorded as a runtime call; what the program wrote is ``x.item()`` or
``torch.cuda.synchronize()``, with framework functions and operators in between. When a fix takes
the act away, all of that goes.
"""

import numpy as np

from pinchpoint.analysis.ancestry import nearest, parents, subtree_sums
from pinchpoint.analysis.frames import telling_frames
from pinchpoint.trace import DeviceKind, HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Rows


@once_per_trace
def called_by_program(trace: Trace) -> Ints:
    """For each row of ``host_ops`` the outermost row around it that is not the program's own.

    A program's own rows are its functions, modules and annotations. ``len(host_ops)`` for those.
    One element more than there are rows, so that the position of no row looks up as no row.
    """
    host = trace.host_ops
    if host is None or not len(host):
        return np.zeros(1, np.int64)
    none = len(host)
    chain = parents(host)
    own = np.isin(host["kind"], (HostKind.MODULE, HostKind.ANNOTATION))
    own |= telling_frames(trace)
    under = np.append(own, True)[chain]
    outermost = nearest(chain, under & ~own)
    return np.append(np.where(own, none, outermost), none)


def acts(trace: Trace, host_ops: Rows) -> Rows:
    """The distinct acts around these rows; rows that have none are left out."""
    if trace.host_ops is None:
        return np.zeros(0, np.intp)
    around = called_by_program(trace)[host_ops]
    return np.unique(around[around < len(trace.host_ops)]).astype(np.intp)


def idle_acts(trace: Trace, host_ops: Rows) -> Rows:
    """The same, where acts launch kernels: only the outermost rows inside them that launch none.

    A library's training loop or ``generate`` is one act; the wait in it is not all of it.
    """
    host = trace.host_ops
    if host is None:
        return np.zeros(0, np.intp)
    none, chain = len(host), parents(host)
    inner = host_ops[host_ops < none]
    around = called_by_program(trace)[inner]
    inner, around = inner[around < none], around[around < none]
    free = np.append(subtree_sums(chain, _kernels_launched(trace)) == 0, False)
    outermost_free = nearest(chain, free[:-1] & ~free[chain])
    rows = np.where(free[around], around, np.append(outermost_free, none)[inner])
    return np.unique(rows[free[rows]]).astype(np.intp)


def _kernels_launched(trace: Trace) -> Ints:
    """How many kernels each row of ``host_ops`` launched itself."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    count = np.zeros(len(host) + 1, np.int64)
    if ops is not None:
        kernels = ops["kind"] == DeviceKind.KERNEL
        np.add.at(count, ops.filled("host_op", len(host))[kernels], 1)
    return count[:-1]
