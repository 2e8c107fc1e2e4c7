"""Host calls merged by stack: what flame graphs, collapsed stacks and speedscope files show.

A node is a path of names under one host thread; calls with the same path are one node. Times are
inclusive: those of a node contain those of its children. Device time belongs to the path that
launched it, so a backward pass that runs on a thread of its own has its own paths.
"""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.ancestry import depths, parents
from pinchpoint.analysis.attribution import launched_ns
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Ints

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
