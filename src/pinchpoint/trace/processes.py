"""Several processes in one recording, each as a trace of its own: ranks that were merged into one
file, or that one profiler watched."""

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Array, Mask, distinct
from pinchpoint.trace.table import Table
from pinchpoint.trace.trace import Trace
from pinchpoint.trace.window import only

# Of the device work of the busiest one: less is a helper (a monitor, a loader that copies).
LEAST_RATIO = 0.1
_OF_THREADS = ("host_ops", "api_calls", "steps", "allocations")


@dataclass(frozen=True)
class ProcessPart:
    """What one process did."""

    process: str  # as the file calls it
    trace: Trace


def processes(trace: Trace) -> tuple[ProcessPart, ...]:
    """The processes that gave devices much of their work, by their devices; empty for a single one.

    Work without a recorded launch belongs to the process whose work alone is linked on its device.
    """
    ops, calls = trace.device_ops, trace.api_calls
    if ops is None or calls is None or not len(ops) or not len(calls):
        return ()
    numbers, of_thread = np.unique([t.process for t in trace.threads], return_inverse=True)
    if len(numbers) < 2:
        return ()
    owner = _owners(ops, calls, of_thread)
    work = np.bincount(owner[owner >= 0], minlength=len(numbers))
    chosen = np.flatnonzero(work >= max(LEAST_RATIO * work.max(), 1))
    if len(chosen) < 2:
        return ()
    by_device = sorted(
        chosen.tolist(), key=lambda p: (int(ops["device"][owner == p].min()), str(numbers[p]))
    )
    return tuple(
        ProcessPart(str(numbers[number]), _of_process(trace, owner == number, of_thread == number))
        for number in by_device
    )


def _owners(ops: Table, calls: Table, of_thread: Array) -> Array:
    """Of each device operation the process that launched it; -1 where that is not known."""
    linked = ops.known("api_call")
    owner = np.full(len(ops), -1, np.int64)
    owner[linked] = of_thread[calls["thread"][ops["api_call"][linked]]]
    for device in distinct(ops["device"]).tolist():
        here = ops["device"] == device
        known = distinct(owner[here & linked])
        if len(known) == 1:
            owner[here] = known[0]
    return owner


def _of_process(trace: Trace, work: Mask, threads: Mask) -> Trace:
    kept: dict[str, Mask] = {"device_ops": work}
    for name in _OF_THREADS:
        rows = getattr(trace, name)
        if isinstance(rows, Table):
            kept[name] = threads[rows["thread"]]
    ops = trace.device_ops
    assert ops is not None
    mine = distinct(ops["device"][work])
    for name in ("device_annotations", "flows", "counters"):
        rows = getattr(trace, name)
        if isinstance(rows, Table):
            kept[name] = ~rows.known("device") | np.isin(rows["device"], mine)
    return only(trace, kept)
