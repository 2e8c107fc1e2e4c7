"""The critical path of one step, in equal parts: what most of each part is, and its name."""

from itertools import pairwise

import numpy as np

from pinchpoint.analysis.causal.critical_path import CriticalPath, Link, critical_path
from pinchpoint.analysis.causal.spent import Spent, spent
from pinchpoint.analysis.host.attribution import launching_operators
from pinchpoint.analysis.host.timeline import NO_ROW, host_rows
from pinchpoint.analysis.replay.replayed_window import ReplayedWindow, replayed_window
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Ints, Mask

PARTS = 240  # of a step: as many as a picture has room for
_NOBODYS = -1  # no position of a name


@dataclass(frozen=True)
class Stretch:
    """Neighbouring parts of a step that are alike; times since the step before was complete."""

    start_ns: int
    duration_ns: int
    link: Link
    name: str | None  # operator, kernel, function or call, as recorded; None: nothing is


@dataclass(frozen=True)
class PathOfStep:
    """The path of the step that is nearest to the mean, and of all that count by kind."""

    stretches: tuple[Stretch, ...]
    ns_per_step: dict[Link, int]


def path_of_step(trace: Trace) -> PathOfStep | None:
    """None where the trace cannot be replayed."""
    path, window = critical_path(trace), replayed_window(trace)
    if path is None or window is None or not len(path.end_ns):
        return None
    begin, end = path.one_step(window)
    names = _names(trace, path, window)
    which = path.link.astype(np.int64) * (len(trace.names) + 1) + names + 1
    kinds, which = np.unique(which, return_inverse=True)
    edges = np.linspace(begin, end, PARTS + 1)
    most = np.array([_most(path, which, *at) for at in pairwise(edges)])
    bounds = [0, *(np.flatnonzero(np.diff(most)) + 1).tolist(), PARTS]
    each = (end - begin) * path.scale / PARTS
    stretches = []
    for low, high in pairwise(bounds):
        link, name = divmod(int(kinds[most[low]]), len(trace.names) + 1)
        text = trace.names[name - 1] if name else None
        stretches.append(Stretch(round(low * each), round((high - low) * each), Link(link), text))
    total = path.of_links(window)
    return PathOfStep(tuple(stretches), {link: round(float(total[link])) for link in Link})


def _most(path: CriticalPath, which: Ints, low: float, high: float) -> int:
    """The kind that has most of ``[low, high)``."""
    first = int(np.searchsorted(path.end_ns, low, "right"))
    if first == len(which):  # behind its end, where times are damaged
        return int(which[-1])
    last = max(int(np.searchsorted(path.start_ns, high, "left")), first + 1)
    inside = np.minimum(path.end_ns[first:last], high) - np.maximum(path.start_ns[first:last], low)
    return int(np.bincount(which[first:last], np.maximum(inside, 0)).argmax())


def _names(trace: Trace, path: CriticalPath, window: ReplayedWindow) -> Ints:
    """Position in ``trace.names`` of what each stretch is; -1 where nothing is recorded."""
    graph, ops, calls, host = window.graph, trace.device_ops, trace.api_calls, trace.host_ops
    assert ops is not None
    assert calls is not None
    of_op = ops["name"][graph.op_rows].astype(np.int64)
    if host is not None and len(host):
        operator = launching_operators(trace)[graph.op_rows]
        of_host = np.append(host["name"].astype(np.int64), _NOBODYS)
        of_op = np.where(operator < len(host), of_host[np.minimum(operator, len(host))], of_op)
    call = np.where(graph.api_rows >= 0, calls["name"][np.maximum(graph.api_rows, 0)], _NOBODYS)
    rows = np.append(host_rows(trace).name.astype(np.int64), _NOBODYS)
    before = rows[_before_nodes(trace, spent(trace, graph), len(graph.lane))]
    on_device = np.isin(path.link, (Link.DEVICE, Link.START))
    node = np.where(on_device, 0, path.at)
    of_node = np.where(path.link == Link.CALL, call[node], before[node])
    found: Ints = np.where(on_device, of_op[np.where(on_device, path.at, 0)], of_node)
    return found


def _before_nodes(trace: Trace, time: Spent, count: int) -> Ints:
    """Of each node the row of host_rows that had most of the host time before it."""
    found = np.full(count, len(host_rows(trace)), np.int64)
    mine = ~time.inside
    order = np.argsort(time.ns[mine], kind="stable")
    found[time.node[mine][order]] = time.row[mine][order]
    return np.where(found == NO_ROW, len(host_rows(trace)), found)


@dataclass(frozen=True, eq=False)
class RowsOfPath:
    """What one step's path leads through, in its order; equally long columns."""

    row: Ints  # of device_ops, or of host_rows
    on_device: Mask
    ns: Ints  # as replayed


def rows_of_path(trace: Trace) -> RowsOfPath:
    """The recorded rows on the path of the step that is nearest to the mean.

    Empty where the trace cannot be replayed. Stretches of host time that no row explains are
    left out, and so is the start of an operation on the device.
    """
    nothing = np.zeros(0, np.int64)
    path, window = critical_path(trace), replayed_window(trace)
    if path is None or window is None:
        return RowsOfPath(nothing, nothing.astype(np.bool_), nothing)
    begin, end = path.one_step(window)
    graph, operators = window.graph, host_rows(trace).operators
    here = (path.end_ns > begin) & (path.start_ns < end) & (path.link != Link.START)
    link, at = path.link[here], path.at[here]
    on_device = link == Link.DEVICE
    node = np.where(on_device, 0, at)
    before = _before_nodes(trace, spent(trace, graph), len(graph.lane))[node]
    none = len(host_rows(trace))
    call = np.where(graph.api_rows[node] >= 0, graph.api_rows[node] + operators, none)
    on_host = np.where(link == Link.CALL, call, before)
    row = np.where(on_device, graph.op_rows[np.where(on_device, at, 0)], on_host)
    known = on_device | (row < none)
    ns = (path.end_ns - path.start_ns)[here]
    return RowsOfPath(row[known], on_device[known], ns[known])
