"""The whole act that the program asked for, seen from any row inside it.

A wait is recorded as a runtime call; what the program wrote is ``x.item()`` or
``torch.cuda.synchronize()``, with framework functions and operators in between. When a fix takes
the act away, all of that goes.
"""

import numpy as np

from pinchpoint.analysis.ancestry import nearest, parents
from pinchpoint.analysis.frames import telling_frames
from pinchpoint.trace import HostKind, Trace, once_per_trace
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
