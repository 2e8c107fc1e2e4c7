"""Host time of the replayed window: which row had it, and before or in which call it was."""

import numpy as np

from pinchpoint.analysis.causal.pieces import NOBODYS
from pinchpoint.analysis.host.timeline import host_rows
from pinchpoint.analysis.replay.blocking import NO_DEPENDENCY
from pinchpoint.analysis.replay.graph import Graph
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.gaps import host_did
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Floats, Ints, Mask


@dataclass(frozen=True, eq=False)
class Spent:
    """Stretches of host time, each before or in one node; recording cost is taken out."""

    node: Ints
    row: Ints  # of host_rows, or NO_ROW
    ns: Floats
    inside: Mask  # in the call, not before it
    gap_ns: Ints  # of the nodes
    own_ns: Ints
    steps: int

    def by_name(self, names: Ints, count: int) -> Floats:
        """Nanoseconds a step of each name; ``names`` has one element for each row."""
        name = names[self.row]
        known = name != NOBODYS
        return np.bincount(name[known], self.ns[known], count) / max(self.steps, 1)

    def by_node(self, wanted: Mask) -> tuple[Ints, Ints, Mask]:
        """Time of wanted rows before each node, and in it; and which nodes are calls of them."""
        mine = np.flatnonzero(wanted[self.row])
        inside = self.inside[mine]
        before, within = mine[~inside], mine[inside]
        nodes = len(self.gap_ns)
        gap = np.bincount(self.node[before], self.ns[before], nodes).astype(np.int64)
        own = np.bincount(self.node[within], self.ns[within], nodes).astype(np.int64)
        calls = np.zeros(nodes, np.bool_)
        calls[self.node[within]] = True
        return np.minimum(gap, np.maximum(self.gap_ns, 0)), np.minimum(own, self.own_ns), calls


def spent(trace: Trace, graph: Graph) -> Spent:
    """The host time of a graph that recording cost has been taken out of."""
    calls = trace.api_calls
    assert calls is not None
    real = graph.api_rows != NO_DEPENDENCY
    thread = np.where(real, calls["thread"][np.maximum(graph.api_rows, 0)], steps(trace).thread)
    until = np.maximum(graph.start_ns, graph.previous_end_ns)
    did = host_did(trace, thread.astype(np.int64), graph.previous_end_ns, until)
    ns = (did.end_ns - did.start_ns).astype(np.float64)
    whole = np.maximum((until - graph.previous_end_ns)[did.asked], 1)
    ns *= np.clip(graph.gap_ns[did.asked] / whole, 0.0, 1.0)
    at = np.flatnonzero(real)
    row = host_rows(trace).operators + graph.api_rows[at]
    return Spent(
        node=np.concatenate((did.asked, at)),
        row=np.concatenate((did.row, row)),
        ns=np.concatenate((ns, graph.own_ns[at].astype(np.float64))),
        inside=np.concatenate((np.zeros(len(ns), np.bool_), np.ones(len(at), np.bool_))),
        gap_ns=graph.gap_ns,
        own_ns=graph.own_ns,
        steps=graph.steps,
    )
