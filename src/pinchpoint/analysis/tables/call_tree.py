"""Host calls merged by stack: what flame graphs, collapsed stacks and speedscope files show.

A node is a path of names under one host thread; calls with the same path are one node. Times are
inclusive: those of a node contain those of its children. Device time belongs to the path that
launched it, so a backward pass that runs on a thread of its own has its own paths.
"""

import numpy as np

from pinchpoint.analysis.host.ancestry import above, depths, nearest, outermost, parents
from pinchpoint.analysis.host.attribution import backward_nodes, forward_rows, launched_ns
from pinchpoint.analysis.host.frames import (
    Owner,
    PythonFrame,
    frame_of,
    frames_for_readers,
    owners,
    recorder_rows,
)
from pinchpoint.analysis.steps.in_steps import NotRecorded
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask, Rows

# ------------------------------------------------------------------------------------------------
# Which functions of the program cost device and host time.
#
# Every operation is charged to one function: the innermost of the reader's or a library's code
# around its launch, so that what torch does inside belongs to the line that called it. Backward
# work is charged to the function whose forward operator it differentiates.


@dataclass(frozen=True)
class SourceRow:
    """One function. The line is where it begins."""

    frame: PythonFrame
    owner: Owner
    calls: int
    host_total_ns: int
    host_self_ns: int  # without other functions of the program, with what torch does for this one
    device_forward_ns: int
    device_backward_ns: int

    @property
    def device_ns(self) -> int:
        """Device time of forward and backward."""
        return self.device_forward_ns + self.device_backward_ns


@dataclass(frozen=True)
class SourceTable:
    """The program's functions: own and library code first, then most device and host time."""

    rows: tuple[SourceRow, ...]
    unattributed_device_ns: int  # of operations without any function around them


def source_table(trace: Trace, rows: Mask | None = None) -> SourceTable | NotRecorded:
    """The table over the calls and launches in the mask ``rows`` of ``host_ops`` (default: all)."""
    host = trace.host_ops
    owner = owners(trace)
    if host is None or not np.any(owner):
        return NotRecorded(
            "the recording has no Python stacks", "torch.profiler.profile(with_stack=True)"
        )
    charged = _charged_functions(trace, host)
    counted = owner != 0
    kept = ~recorder_rows(trace) & (True if rows is None else rows)
    forward, backward, lost = _device_times(trace, charged, kept)
    names = len(trace.names)
    outer = outermost(
        host["name"].astype(np.int64) * (int(host["thread"].max()) + 1) + host["thread"],
        host["start_ns"],
        host.end_ns,
    )
    calls = counted & outer & kept
    own = counted & kept
    sums = {
        "calls": _by_name(host, calls, np.ones(len(host), np.int64), names),
        "host_total_ns": _by_name(host, calls, host["duration_ns"], names),
        "host_self_ns": np.maximum(_by_name(host, own, _host_self(trace, host), names), 0),
        "device_forward_ns": _by_name(host, counted, forward, names),
        "device_backward_ns": _by_name(host, counted, backward, names),
    }
    used = np.flatnonzero(
        sums["host_self_ns"] + sums["device_forward_ns"] + sums["device_backward_ns"]
    )
    table = [_row(trace.names[position], sums, int(position)) for position in used]
    table.sort(key=lambda r: (r.owner == Owner.FRAMEWORK, -r.device_ns, -r.host_self_ns))
    return SourceTable(tuple(table), lost)


def _charged_functions(trace: Trace, host: Table) -> Rows:
    """The function charged with each host row: a framework's only if there is no other."""
    parent = parents(host)
    telling = nearest(parent, frames_for_readers(trace))
    return np.where(telling < len(host), telling, nearest(parent, owners(trace) != 0))


def _device_times(trace: Trace, charged: Rows, kept: Mask) -> tuple[Ints, Ints, int]:
    """Forward and backward device time per function row, and what no function is charged with."""
    none = len(charged)
    launched = np.where(kept, launched_ns(trace), 0)
    forward_of = forward_rows(trace)
    in_backward = nearest(parents(trace.host_ops), backward_nodes(trace)) < none  # type: ignore[arg-type]
    function = np.append(charged, none)[forward_of]
    times = []
    for mine in (~in_backward, in_backward):
        total = np.zeros(none + 1, np.int64)
        np.add.at(total, function[mine], launched[mine])
        times.append(total)
    forward, backward = times
    return forward[:-1], backward[:-1], int(forward[-1] + backward[-1])


def _host_self(trace: Trace, host: Table) -> Ints:
    """Time of each function without the functions of the program that it calls."""
    parent = parents(host)
    telling = frames_for_readers(trace)
    inside = np.zeros(len(host) + 1, np.int64)
    np.add.at(inside, above(parent, telling)[telling], host["duration_ns"][telling])
    # A framework's function is charged only with what runs under nobody else's.
    alone = above(parent, owners(trace) != 0) == len(host)
    self_ns: Ints = np.where(telling, host["duration_ns"] - inside[:-1], 0)
    return np.where(~telling & alone, host["duration_ns"], self_ns)


def _by_name(host: Table, mask: Mask, values: Ints, names: int) -> Ints:
    total = np.zeros(names, np.int64)
    np.add.at(total, host["name"][mask], values[mask])
    return total


def _row(name: str, sums: dict[str, Ints], position: int) -> SourceRow:
    frame = frame_of(name)
    assert frame is not None
    return SourceRow(frame, frame.owner, **{c: int(v[position]) for c, v in sums.items()})


# ------------------------------------------------------------------------------------------------
# Host calls merged by stack: what flame graphs, collapsed stacks and speedscope files show.


NO_NODE = -1  # in ``parent``: a root
THREAD = -1  # in ``name``: the node is a thread, not a call
STEP = -2  # in ``name``: a step marker; their numbers would keep every step apart


@dataclass(frozen=True, eq=False)
class CallTree:
    """One element a node; parents come before their children, roots are threads."""

    parent: Ints  # NO_NODE of a root
    name: Ints  # position in Trace.names, or THREAD, or STEP
    thread: Ints
    depth: Ints
    calls: Ints
    host_ns: Ints
    device_ns: Ints

    def __len__(self) -> int:
        return len(self.parent)

    def labels(self, trace: Trace) -> list[str]:
        """The name of each node as the trace spells it; ``step`` for all step markers."""
        labels = []
        for name, thread in zip(self.name.tolist(), self.thread.tolist(), strict=True):
            if name == THREAD:
                owner = trace.threads[thread]
                labels.append(owner.label or f"thread {owner.thread}")
            else:
                labels.append("step" if name == STEP else trace.names[name])
        return labels

    def own(self, total: Ints) -> Ints:
        """What of an inclusive column is not in children; never below zero.

        Children that stick out of their parent would make it negative.
        """
        left = total.copy()
        inner = self.parent != NO_NODE
        np.subtract.at(left, self.parent[inner], total[inner])
        return np.maximum(left, 0)


@once_per_trace
def call_tree(trace: Trace) -> CallTree:
    """All host rows and driver calls of the recording, merged by stack."""
    rows = _rows(trace)
    used = np.unique(rows.thread)
    node = np.zeros(len(rows.name), np.int64)
    parent, name = [np.full(len(used), NO_NODE)], [np.full(len(used), THREAD)]
    thread, depth = [used], [np.zeros(len(used), np.int64)]
    nodes, step, width = len(used), len(trace.names), len(trace.names) + 1
    markers = np.zeros(0, np.int64) if trace.steps is None else np.unique(trace.steps["name"])
    named = np.where(np.isin(rows.name, markers), step, rows.name)
    for level, here in enumerate(_levels(rows.depth)):
        root = np.searchsorted(used, rows.thread[here])
        above = rows.parent[here]
        up = np.where(above == NO_NODE, root, node[above])
        found, first, which = np.unique(
            up * width + named[here], return_index=True, return_inverse=True
        )
        node[here] = nodes + which
        parent.append(found // width)
        name.append(np.where(found % width == step, STEP, found % width))
        thread.append(rows.thread[here][first])
        depth.append(np.full(len(found), level + 1))
        nodes += len(found)
    tree = [np.concatenate(part).astype(np.int64) for part in (parent, name, thread, depth)]
    calls, host, device = (
        _summed(node, values, nodes)
        for values in (np.ones(len(node), np.int64), rows.host_ns, rows.device_ns)
    )
    _add_to_parents(tree[0], tree[3], device, deepest=int(tree[3].max(initial=0)))
    _add_to_parents(tree[0], tree[3], host, deepest=1)
    return CallTree(tree[0], tree[1], tree[2], tree[3], calls, host, device)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Host rows, then driver calls, with positions in this order."""

    parent: Ints
    depth: Ints
    name: Ints
    thread: Ints
    host_ns: Ints
    device_ns: Ints


def _rows(trace: Trace) -> _Rows:
    parts: list[list[Ints]] = []
    host, api = trace.host_ops, trace.api_calls
    if host is not None and len(host):
        above = parents(host)
        parts.append(
            [
                np.where(above == len(host), NO_NODE, above),
                depths(above),
                host["name"],
                host["thread"],
                host["duration_ns"],
                launched_ns(trace),
            ]
        )
    if api is not None and len(api):
        caller = api.filled("host_op", NO_NODE).astype(np.int64)
        depth = np.zeros(len(api), np.int64)
        if parts:
            depth = np.where(caller == NO_NODE, 0, parts[0][1][caller] + 1)
        columns = [caller, depth, api["name"], api["thread"], api["duration_ns"]]
        parts.append([*columns, np.zeros(len(api), np.int64)])
    if not parts:
        return _Rows(*[np.zeros(0, np.int64)] * 6)
    return _Rows(*(np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True)))


def _levels(depth: Ints) -> list[Ints]:
    """Rows of each depth, outermost first."""
    order = np.argsort(depth, kind="stable")
    edges = np.flatnonzero(np.diff(depth[order])) + 1
    return np.split(order, edges) if len(order) else []


def _summed(node: Ints, values: Ints, nodes: int) -> Ints:
    total = np.zeros(nodes, np.int64)
    np.add.at(total, node, values)
    return total


def _add_to_parents(parent: Ints, depth: Ints, total: Ints, *, deepest: int) -> None:
    """Add each node's value to its parent's, from ``deepest`` up."""
    for level in range(deepest, 0, -1):
        here = np.flatnonzero(depth == level)
        np.add.at(total, parent[here], total[here])
