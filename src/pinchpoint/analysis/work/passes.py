"""Whether a step is several passes through the model: the same again, or one longer each time."""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.ancestry import nearest, parents, within
from pinchpoint.analysis.host.input_arguments import input_shapes
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps, rows_in_steps
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Mask, Rows, distinct, distinct_rows
from pinchpoint.trace.names import rows_named


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
    top = operator & ~within(chain, operator)[chain]
    rows = np.flatnonzero(top & rows_in_steps(trace, host))
    step = judged_steps(trace).step_of(host["start_ns"][rows])
    sign = host["name"][rows].astype(np.int64) * len(trace.names) + host.filled("shapes", 0)[rows]
    repeats, later, first, places, used = set(), [], None, [], 0
    for at in distinct(step).tolist():
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


# ------------------------------------------------------------------------------------------------
# Whether a step runs the model several times over a sequence that is one longer each time.


FEWEST_PASSES = 3  # two lengths that differ by one may be two prompts


@dataclass(frozen=True, eq=False)
class GrowingPasses:
    """Passes of one step over a growing sequence; all judged steps are alike."""

    lengths: tuple[int, ...]  # of the sequence, pass by pass
    second: int  # row of host_ops: the first attention of the second pass of the first step
    later_ops: Rows  # of device_ops: what all passes but the first of each step launched


@once_per_trace
def growing_passes(trace: Trace) -> GrowingPasses | None:
    """The passes, where queries are as long as keys and one longer in each; None otherwise."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None:
        return None
    rows, length = _self_attention(trace)
    step = judged_steps(trace).step_of(host["start_ns"][rows])
    found, later, second = None, np.zeros(len(ops), np.bool_), -1
    for at in distinct(step).tolist():
        mine = rows[step == at]
        change = np.append(True, np.diff(length[step == at]) != 0)
        lengths, firsts = length[step == at][change], mine[change]
        if len(lengths) < FEWEST_PASSES or (np.diff(lengths) != 1).any():
            return None
        if found is not None and len(found) != len(lengths):
            return None
        found, second = tuple(lengths.tolist()), int(firsts[1]) if found is None else second
        later |= _launched_between(trace, mine, firsts)
    if found is None:
        return None
    return GrowingPasses(found, second, np.flatnonzero(later & device_ops_in_steps(trace)))


def _self_attention(trace: Trace) -> tuple[Rows, Rows]:
    """Calls of attention of as many queries as keys, in order, and how many; none if any differ."""
    host = trace.host_ops
    assert host is not None
    named = rows_named(trace, host, lambda name: name.endswith("scaled_dot_product_attention"))
    named &= (host["kind"] == HostKind.OPERATOR) & rows_in_steps(trace, host)
    rows = np.flatnonzero(named)
    lengths: list[int] = []
    for row in rows.tolist():
        query, key, *_ = (*(input_shapes(trace.text(host, "shapes", row) or "") or ()), (), ())
        if not query or not key or len(query) != 4 or query[2:3] != key[2:3]:
            return rows[:0], rows[:0]
        lengths.append(query[2])
    return rows, np.array(lengths, np.intp)


def _launched_between(trace: Trace, attention: Rows, firsts: Rows) -> Mask:
    """Device operations launched from the start of the second pass to the step's last attention.

    The layers before a pass's first attention belong to it: as long as from the end of one
    layer's attention to the next.
    """
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    start = host["start_ns"]
    begin = int(host.end_ns[attention[np.searchsorted(attention, firsts[1]) - 1]])
    launched = np.append(start, np.iinfo(np.int64).max)[ops.filled("host_op", len(host))]
    last = int(judged_steps(trace).step_of(start[attention[-1:]])[0])
    step = judged_steps(trace).step_of(launched)
    found: Mask = (launched >= begin) & (step == last)
    return found
