"""Backward nodes that run several times in one step: of losses that share a graph that is kept.

Autograd gives each node the number of its forward operator, so the same name and number on one
thread is the same node run again. Runs of a step are told apart by the first node that comes again.
A run counts if gradients are added up in it, to those of the run before: one whose gradients are
read and dropped, or that records nodes itself (``create_graph=True``), is wanted for itself. A step
of an optimizer in between separates runs.
"""

import numpy as np

from pinchpoint.analysis.host.ancestry import above, nearest, parents
from pinchpoint.analysis.host.attribution import backward_nodes, launched_count, recording_nodes
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask, Rows, distinct_rows
from pinchpoint.trace.names import rows_named

_STORES, _ADDS = 1, 2  # what AccumulateGrad does: keep a gradient, add one to it


@dataclass(frozen=True, eq=False)
class BackwardRuns:
    """Rows of ``host_ops``: ``again`` are nodes after their first run, with what adds gradients."""

    again: Rows
    times: float  # runs of such a node in a step


@once_per_trace
def backward_runs(trace: Trace) -> BackwardRuns | None:
    """What runs again; None where nothing does."""
    host = trace.host_ops
    if host is None or not len(host):
        return None
    stored = _accumulated(trace, host)
    rows, node, turn = _repeated(trace, host, stored == 0)
    if not len(rows):
        return None
    adding = np.flatnonzero(stored)
    step = judged_steps(trace).step_of(host["start_ns"])
    width = int(turn.max()) + 1
    key = step[rows] * width + turn
    windows, which = np.unique(key, return_inverse=True)
    begin = np.full(len(windows), np.iinfo(np.int64).max)
    np.minimum.at(begin, which, host["start_ns"][rows])
    # Windows follow each other: those of a step by turn, those of the trace by step.
    of_adding = np.searchsorted(begin, host["start_ns"][adding], "right") - 1
    inside = (of_adding >= 0) & (step[adding] == windows[of_adding] // width)
    best = np.zeros(len(windows), np.int64)
    np.maximum.at(best, of_adding[inside], stored[adding][inside])
    best[np.unique(which[recording_nodes(trace)[rows]])] = 0
    again = _after_the_first(best, windows // width, _optimized_before(trace, host, begin))
    counts = again | (best > 0)
    gone = rows[again[which]]
    if not len(gone):
        return None
    late = adding[inside & again[of_adding] & (stored[adding] == _ADDS)]
    nodes = len(np.unique(node[again[which]]))
    return BackwardRuns(np.union1d(gone, late), float(counts[which].sum()) / nodes)


def _accumulated(trace: Trace, host: Table) -> Ints:
    """Of each row that is an outermost AccumulateGrad what it does; 0 of all others."""
    up = parents(host)
    named = rows_named(trace, host, lambda name: name.endswith("AccumulateGrad"))
    outermost = named & (above(up, named) == len(host))
    around = nearest(up, outermost)[launched_count(trace) > 0]
    found = np.where(np.append(outermost, False), _STORES, 0)
    found[around[around < len(host)]] = _ADDS
    return found[:-1]


def _repeated(trace: Trace, host: Table, wanted: Mask) -> tuple[Rows, Ints, Ints]:
    """Outermost nodes of judged steps that run several times: rows, node and number of the run."""
    backward = backward_nodes(trace)
    step = judged_steps(trace).step_of(host["start_ns"])
    top = backward & (above(parents(host), backward) == len(host)) & wanted
    rows = np.flatnonzero(top & (step >= 0) & host.known("sequence"))
    if not len(rows):
        return rows, rows, rows
    rows = rows[np.argsort(host["start_ns"][rows], kind="stable")]
    columns = (step[rows], host["name"][rows], host["thread"][rows], host["sequence"][rows])
    node = distinct_rows(*(column.astype(np.int64) for column in columns))[1]
    order = np.argsort(node, kind="stable")
    first = np.searchsorted(node[order], node[order], "left")
    turn = np.empty(len(rows), np.int64)
    turn[order] = np.arange(len(rows)) - first
    several = np.bincount(node)[node] > 1
    return rows[several], node[several], turn[several]


def _optimized_before(trace: Trace, host: Table, at_ns: Ints) -> Ints:
    """How many steps of optimizers began before each time."""
    stepping = rows_named(trace, host, lambda name: name.startswith("Optimizer.step#"))
    found: Ints = np.searchsorted(np.sort(host["start_ns"][stepping]), at_ns)
    return found


def _after_the_first(does: Ints, step: Ints, optimized: Ints) -> Mask:
    """Runs that add to the gradients of one before them, with no step of an optimizer between."""
    again = np.zeros(len(does), np.bool_)
    last: tuple[int, int] | None = None
    for at, key in enumerate(zip(step.tolist(), optimized.tolist(), strict=True)):
        if does[at]:
            again[at] = key == last and does[at] == _ADDS
            last = key
    return again
