"""The costs of kernels of graph replays, by the operators that were captured."""

from dataclasses import replace

import numpy as np

from pinchpoint.analysis.host.graph_replays import replayed
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, distinct_calls
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Floats, Rows


@dataclass(frozen=True, eq=False)
class ReplayedCalls:
    """The distinct captured calls, and for each row of ``device_ops`` which of them it is of
    (their number for none), and its share of the time of its call in its replay."""

    calls: tuple[LaunchedCall, ...]
    which: Rows
    share: Floats


def replayed_calls(trace: Trace) -> ReplayedCalls | None:
    """None where no capture of a replayed graph was recorded."""
    found, ops = replayed(trace), trace.device_ops
    if found is None or ops is None:
        return None
    mine = np.flatnonzero(found.call >= 0)
    rows = np.unique(found.rows[mine])
    calls, member = distinct_calls(replace(trace, host_ops=found.captured), rows)
    which = np.full(len(ops), len(calls), np.intp)
    which[mine] = member[np.searchsorted(rows, found.rows[mine])]
    took = ops["duration_ns"][mine].astype(np.float64)
    whole = np.bincount(found.call[mine], took)[found.call[mine]]
    share = np.zeros(len(ops))
    share[mine] = took / np.maximum(whole, 1.0)
    return ReplayedCalls(calls, which, share)
