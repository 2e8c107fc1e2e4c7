"""Whether repeats are layers of one pass through a model instead of passes.

Modules are recorded by instance (``Block_3``). Layers are different instances inside one outermost
call; passes call the same instances again.
"""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.launches import main_thread
from pinchpoint.trace import HostKind, Table, Trace, once_per_trace

Times = NDArray[np.int64]

MOST_LINKED_RATIO = 0.5  # of neighbouring boundaries inside one call: they divide that call
# Calls of an instance a piece: passes have one, twelve layers a twelfth.
FEWEST_CALLS_A_PIECE = 0.5


@once_per_trace
def module_calls(trace: Trace) -> Table | None:
    """Calls of modules on the main thread, in order; None if none were recorded."""
    host = trace.host_ops
    if host is None:
        return None
    rows = (host["kind"] == HostKind.MODULE) & (host["thread"] == main_thread(trace))
    return host.take(rows) if rows.any() else None


def outermost(rows: Table) -> Table:
    """The calls that no other of the rows encloses."""
    outer = np.ones(len(rows), np.bool_)
    outer[1:] = rows["start_ns"][1:] >= np.maximum.accumulate(rows.end_ns)[:-1]
    return rows.take(outer)


def are_layers(trace: Trace, at_ns: Times) -> bool:
    """Whether boundaries in time, sorted, divide passes into layers; False where no modules were
    recorded."""
    calls = module_calls(trace)
    if calls is None or len(at_ns) < 2:
        return False
    outer = outermost(calls)
    which = np.searchsorted(outer["start_ns"], at_ns, "right") - 1
    inside = (which >= 0) & (at_ns < outer.end_ns[which])
    linked = inside[1:] & inside[:-1] & (which[1:] == which[:-1])
    if linked.mean() <= MOST_LINKED_RATIO:
        return False
    start = calls["start_ns"]
    names = calls["name"][(start >= at_ns[0]) & (start < at_ns[-1])]
    return len(names) < FEWEST_CALLS_A_PIECE * len(at_ns) * max(len(np.unique(names)), 1)
