"""What a call of each module leaves allocated on the device: parameters made, activations kept."""

import numpy as np

from pinchpoint.analysis.modules import MODULE_PREFIX
from pinchpoint.trace import HostKind, Table, Trace
from pinchpoint.trace.arrays import Ints


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
