"""What each ``nn.Module`` of a model costs, as a tree.

A module is an instance as the tracer numbers them (``Linear_3``); it stands in the tree under the
module that calls it most. Inclusive times follow the calls themselves, so a module that is shared
by two parents, or called again by activation checkpointing, is charged wherever it ran.
"""

import re
from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import above, nearest, outermost, parents, subtree_sums
from pinchpoint.analysis.host.attribution import backward_nodes, forward_rows, launched_ns
from pinchpoint.analysis.steps.in_steps import NotRecorded
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Table, Trace
from pinchpoint.trace.arrays import Ints, Mask, Rows

MODULE_PREFIX = "nn.Module: "  # of a module's name, as PyTorch's tracer writes it


@dataclass(frozen=True)
class ModuleRow:
    """One module instance. *Self* is without the modules inside it."""

    name: str  # Linear_3
    class_name: str  # Linear
    path: str  # Model_0/Block_1/Linear_3
    depth: int
    calls: int
    host_total_ns: int
    host_self_ns: int
    device_forward_ns: int
    device_forward_self_ns: int
    device_backward_ns: int
    device_backward_self_ns: int


@dataclass(frozen=True)
class Modules:
    """The module tree, each module followed by those inside it, siblings as first called."""

    rows: tuple[ModuleRow, ...]
    outside_device_ns: int  # device time that belongs to no module: loss, optimizer, copies


def modules(trace: Trace, rows: Mask | None = None) -> Modules | NotRecorded:
    """The tree over the calls and launches in the mask ``rows`` of ``host_ops`` (default: all)."""
    host = trace.host_ops
    calls = np.zeros(0, np.bool_) if host is None else host["kind"] == HostKind.MODULE
    if host is None or not calls.any():
        return NotRecorded(
            "the recording does not show modules", "torch.profiler.profile(with_stack=True)"
        )
    kept = np.ones(len(host), np.bool_) if rows is None else rows
    caller = np.where(calls, above(parents(host), calls), len(host))
    forward, backward, outside = _device_times(trace, host, calls, kept)
    inside = np.zeros(len(host) + 1, np.int64)
    np.add.at(inside, caller, np.where(calls, host["duration_ns"], 0))
    outer = calls & _outermost(host)  # of a module that calls itself
    once = outer & kept
    columns = {
        "calls": (once, np.ones(len(host), np.int64)),
        "host_total_ns": (once, host["duration_ns"]),
        "host_self_ns": (calls & kept, host["duration_ns"] - inside[:-1]),
        "device_forward_ns": (outer, subtree_sums(caller, forward)),
        "device_forward_self_ns": (calls, forward),
        "device_backward_ns": (outer, subtree_sums(caller, backward)),
        "device_backward_self_ns": (calls, backward),
    }
    sums = {c: _by_name(trace, host, *what) for c, what in columns.items()}
    return Modules(tuple(_rows(trace, _children(host, calls, caller), sums)), outside)


def _device_times(trace: Trace, host: Table, calls: Mask, kept: Mask) -> tuple[Ints, Ints, int]:
    """Device time that each module call launched itself, in forward and backward; the rest."""
    none = len(host)
    parent = parents(host)
    launched = np.where(kept, launched_ns(trace), 0)
    in_backward = nearest(parent, backward_nodes(trace)) < none
    module = np.append(nearest(parent, calls), none)
    # Work recomputed in the backward pass runs in a module again, and has that module at hand.
    again = in_backward & (module[:-1] < none)
    owner = np.where(again, module[:-1], module[forward_rows(trace)])
    times = []
    for mine in (~in_backward | again, in_backward & ~again):
        total = np.zeros(none + 1, np.int64)
        np.add.at(total, owner[mine], launched[mine])
        times.append(total)
    forward, backward = times
    return forward[:-1], backward[:-1], int(forward[-1] + backward[-1])


def _outermost(host: Table) -> Mask:
    threads = int(host["thread"].max()) + 1
    return outermost(
        host["name"].astype(np.int64) * threads + host["thread"], host["start_ns"], host.end_ns
    )


def _by_name(trace: Trace, host: Table, mask: Mask, values: Ints) -> Ints:
    total = np.zeros(len(trace.names), np.int64)
    np.add.at(total, host["name"][mask], values[mask])
    return total


def _children(host: Table, calls: Mask, caller: Rows) -> dict[int, list[int]]:
    """Names of the modules inside each module, in order of first call; those of -1 are roots."""
    name = host["name"][calls].astype(np.int64)
    above_it = np.append(host["name"].astype(np.int64), -1)[caller[calls]]
    above_it = np.where(above_it == name, -1, above_it)
    pairs, first, counts = np.unique(
        np.stack((name, above_it)), axis=1, return_index=True, return_counts=True
    )
    best: dict[int, tuple[int, int, int]] = {}  # module -> calls from its parent, -first, parent
    for (module, parent), at, count in zip(pairs.T.tolist(), first, counts, strict=True):
        best[module] = max(best.get(module, (0, 0, -1)), (int(count), -int(at), parent))
    inside: dict[int, list[int]] = {}
    for module in sorted(best, key=lambda m: -best[m][1]):
        inside.setdefault(best[module][2], []).append(module)
    return inside


def _rows(trace: Trace, inside: dict[int, list[int]], sums: dict[str, Ints]) -> Iterator[ModuleRow]:
    """The tree from its roots. Modules that only call each other have no root and are left out."""
    open_paths = [(module, "") for module in reversed(inside.get(-1, []))]
    while open_paths:
        module, prefix = open_paths.pop()
        name = trace.names[module].removeprefix(MODULE_PREFIX)
        path = f"{prefix}/{name}" if prefix else name
        yield ModuleRow(
            name=name,
            class_name=re.sub(r"_\d+$", "", name),
            path=path,
            depth=path.count("/"),
            **{column: int(values[module]) for column, values in sums.items()},
        )
        open_paths += [(child, path) for child in reversed(inside.get(module, []))]


# ------------------------------------------------------------------------------------------------
# What a call of each module leaves allocated on the device: parameters made, activations kept.


def kept_bytes_per_call(trace: Trace) -> dict[str, float] | None:
    """Bytes allocated minus bytes freed on a device while a call ran on its thread, by module.

    Mean over calls; modules inside it included. Negative where a module frees more than it takes.
    None if the recording shows no modules, or no memory of a device.
    """
    host, events = trace.host_ops, trace.allocations
    if host is None or events is None:
        return None
    calls = np.flatnonzero(host["kind"] == HostKind.MODULE)
    on_device = np.flatnonzero(events.known("device"))
    if not len(calls) or not len(on_device):
        return None
    kept = _within(events.take(on_device), host.take(calls))
    names = host["name"][calls]
    total = np.bincount(names, weights=kept)
    count = np.bincount(names)
    return {
        trace.names[i].removeprefix(MODULE_PREFIX): float(total[i] / count[i])
        for i in np.flatnonzero(count).tolist()
    }


def _within(events: Table, calls: Table) -> Ints:
    """Bytes that the events inside each call add up to, thread by thread."""
    kept = np.zeros(len(calls), np.int64)
    for thread in np.unique(calls["thread"]).tolist():
        mine, own = events["thread"] == thread, calls["thread"] == thread
        times = events["time_ns"][mine]
        before = np.concatenate(([0], np.cumsum(events["bytes"][mine])))
        start, end = calls["start_ns"][own], calls.end_ns[own]
        last, first = np.searchsorted(times, end, "right"), np.searchsorted(times, start)
        kept[own] = before[last] - before[first]
    return kept
