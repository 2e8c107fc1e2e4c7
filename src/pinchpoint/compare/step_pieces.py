"""Every nanosecond of the steps, given to one device operation or to one cause of idling.

It follows the accounting: an instant belongs to the category that ``device_activity`` gives it to,
and within the category to the operation that started first. So the pieces of a category add up to
its part of the breakdown, in integers.
"""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.categories import category_of_device_ops
from pinchpoint.analysis.device_activity import ORDER, device_activity
from pinchpoint.analysis.gaps import gaps
from pinchpoint.analysis.launches import own_work
from pinchpoint.analysis.steps import steps
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace import intervals as iv
from pinchpoint.trace.arrays import Ints

NO_OP = -1  # no row: the device was idle


@dataclass(frozen=True, eq=False)
class StepPieces:
    """Arrays of one length, one element a piece.

    ``op`` is the row of ``device_ops``, NO_OP for idle time; ``gap`` the position in ``gaps``,
    NO_OP for device work.
    """

    step: Ints
    ns: Ints
    op: Ints
    gap: Ints


@once_per_trace
def step_pieces(trace: Trace) -> StepPieces:
    """All pieces of all step windows; none without a device."""
    windows = steps(trace)
    ops = trace.device_ops
    nothing = np.zeros(0, np.int64)
    if ops is None or not len(ops) or not len(windows):
        return StepPieces(nothing, nothing, nothing, nothing)
    category = category_of_device_ops(trace)
    own = own_work(trace)
    found = [
        _of_category(
            np.flatnonzero(own & (category == code)),
            ops["start_ns"],
            ops.end_ns,
            device_activity(trace).exclusive[code],
            windows.start_ns,
            windows.end_ns,
        )
        for code in ORDER
        if code in device_activity(trace).exclusive
    ]
    idle = gaps(trace)
    at = np.arange(len(idle), dtype=np.int64)
    found.append(StepPieces(idle.step, idle.duration_ns, np.full(len(idle), NO_OP), at))
    return StepPieces(
        *(np.concatenate([getattr(f, name) for f in found]) for name in StepPieces.__annotations__)
    )


def _of_category(
    rows: Ints, start: Ints, end: Ints, when: iv.Intervals, low: Ints, high: Ints
) -> StepPieces:
    rows = rows[np.argsort(start[rows], kind="stable")]
    first, last = start[rows], end[rows]
    reach = np.maximum.accumulate(last)
    covered = np.concatenate(([np.iinfo(np.int64).min], reach[:-1]))
    first = np.maximum(first, covered)  # what an earlier one of the category covers is its own
    lasting = last > first
    rows, first, last = rows[lasting], first[lasting], last[lasting]
    # A piece may reach into the next step's window: one part a window.
    begin = np.searchsorted(high, first, "right")
    until = np.searchsorted(low, last, "left")
    count = np.maximum(until - begin, 0)
    which = np.repeat(np.arange(len(rows)), count)
    window = begin[which] + np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
    a = np.maximum(first[which], low[window])
    b = np.minimum(last[which], high[window])
    ns = iv.covered_before(when, b) - iv.covered_before(when, a)
    kept = ns > 0
    return StepPieces(
        window[kept], ns[kept], rows[which][kept], np.full(int(kept.sum()), NO_OP, np.int64)
    )
