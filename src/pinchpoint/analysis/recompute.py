"""Which work is the forward pass done again inside the backward pass (activation checkpointing).

Autograd numbers an operator only while it records gradients. Inside a node of the backward pass it
does not, unless a checkpoint runs its part of the forward pass again; so an operator that has a
number and runs inside a backward node is recomputed, and so is what it calls. (A backward pass
that is itself differentiated looks the same.)
"""

import numpy as np

from pinchpoint.analysis.ancestry import above, nearest, parents
from pinchpoint.analysis.attribution import backward_nodes
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Mask


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
    forward_again = numbered & inside
    decides = np.append(nearest(up, backward | forward_again), none)[:-1]
    answer: Mask = np.append(forward_again, False)[decides]
    return answer
