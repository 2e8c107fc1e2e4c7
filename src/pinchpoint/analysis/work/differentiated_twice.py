"""Which operators a gradient of a gradient needs: ``create_graph=True`` and a backward through it.

A pass that is differentiated records nodes itself (:func:`recording_nodes`). They share a number
with the forward operators that they differentiate, and the operators that they run are numbered for
nodes of the second pass. What XLA or a functional transform differentiates leaves no such nodes.
"""

import numpy as np

from pinchpoint.analysis.host.ancestry import above, nearest, parents
from pinchpoint.analysis.host.attribution import backward_nodes, forward_rows, recording_nodes
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Mask


@once_per_trace
def differentiated_twice(trace: Trace) -> Mask:
    """Rows of ``host_ops``: the first pass through such a graph, the second, and the forward
    operators under both."""
    host = trace.host_ops
    if host is None or not len(host):
        return np.zeros(0, np.bool_)
    none, up, recording = len(host), parents(host), recording_nodes(trace)
    if not recording.any():
        return np.zeros(none, np.bool_)
    first = nearest(up, recording) != none
    numbered = host.known("sequence") & (host["kind"] == HostKind.OPERATOR)
    numbers = np.unique(host["sequence"][numbered & first])
    backward = backward_nodes(trace)
    outermost = backward & (above(up, backward) == none)
    later = outermost & numbered & np.isin(host["sequence"], numbers)
    forward = np.zeros(none + 1, np.bool_)
    forward[forward_rows(trace)[recording]] = True
    forward[none] = False
    found: Mask = first | (nearest(up, later | forward[:-1]) != none)
    return found
