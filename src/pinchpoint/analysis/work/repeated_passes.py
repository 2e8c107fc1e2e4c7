"""Whether a step is the same pass through the model several times over."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.steps.in_steps import judged_steps, rows_in_steps
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Rows, distinct_rows


@dataclass(frozen=True, eq=False)
class Passes:
    """Passes through the model inside the judged steps, all alike."""

    repeats: int  # in one step
    first_row: int  # of host_ops: the first operator of the first pass
    later_rows: Rows  # top-level operators of all passes but the first of each step
    rows: Rows  # top-level operators of all passes
    place: Rows  # of each of these: the same for operators that do the same in one step's passes

    def same_work(self, trace: Trace) -> tuple[Rows, Rows]:
        """Device operations of all passes, and a number for each: equal for the same launch of the
        same operator in the passes of one step."""
        host, ops = trace.host_ops, trace.device_ops
        assert host is not None
        assert ops is not None
        none = len(host)
        place = np.full(none + 1, -1, np.int64)
        place[self.rows] = self.place
        top = np.zeros(none, np.bool_)
        top[self.rows] = True
        around = np.append(nearest(parents(host), top), none)[ops.filled("host_op", none)]
        launched = np.flatnonzero(around < none)
        launched = launched[np.lexsort((ops["start_ns"][launched], around[launched]))]
        _, begin, member = np.unique(around[launched], return_index=True, return_inverse=True)
        ordinal = np.arange(len(launched)) - begin[member]
        return launched, distinct_rows(place[around[launched]], ordinal)[1]


@once_per_trace
def repeated_passes(trace: Trace) -> Passes | None:
    """The pass that a step repeats, or None.

    A step repeats a pass if its top-level operators, with their shapes, are one sequence several
    times over, apart from what comes before the first and after the last of them.
    """
    host = trace.host_ops
    if host is None or not len(host) or not host.known("shapes").any():
        return None
    chain = parents(host)
    operator = host["kind"] == HostKind.OPERATOR
    top = operator & ~np.append(nearest(chain, operator) < len(host), False)[chain]
    rows = np.flatnonzero(top & rows_in_steps(trace, host))
    step = judged_steps(trace).step_of(host["start_ns"][rows])
    sign = host["name"][rows].astype(np.int64) * len(trace.names) + host.filled("shapes", 0)[rows]
    repeats, later, first, places, used = set(), [], None, [], 0
    for at in np.unique(step).tolist():
        mine = rows[step == at]
        period = _period(sign[step == at])
        if period is None:
            return None
        repeats.add(len(mine) // period)
        later.append(mine[period:])
        places.append(used + np.arange(len(mine)) % period)
        used += period
        first = int(mine[0]) if first is None else first
    if len(repeats) != 1 or first is None:
        return None
    return Passes(repeats.pop(), first, np.concatenate(later), rows, np.concatenate(places))


def _period(signs: NDArray[np.int64]) -> int | None:
    """The shortest period of a sequence that is one pattern at least twice over."""
    for period in np.flatnonzero(signs[1:] == signs[0]) + 1:
        if 2 * period > len(signs):
            return None
        if np.array_equal(signs[period:], signs[:-period]):
            return int(period)
    return None
