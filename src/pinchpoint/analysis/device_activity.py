"""When the device was busy, with what, and what ran at the same time.

Busy time is the union of intervals over all streams and devices of the process, never a sum of
durations. Each instant belongs to one category: compute before memsets before collectives
before copies, so that a collective or copy counts only where it is exposed, and of two computing
categories at once the one that stands first in ``ORDER``.
"""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.categories import NO_CATEGORY, Category, category_of_device_ops
from pinchpoint.analysis.launches import own_work
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace import intervals as iv

COPIES = (
    Category.COPY_H2D,
    Category.COPY_D2H,
    Category.COPY_P2P,
    Category.COPY_OTHER,
)
# Not compute, and exposed where no compute runs at the same time.
EXPOSABLE = (Category.COLLECTIVE, *COPIES)
ORDER = (*(c for c in Category if c not in EXPOSABLE), *EXPOSABLE)


@dataclass(frozen=True, eq=False)
class DeviceActivity:
    """The device between its first and its last recorded operation.

    ``exclusive`` splits ``busy`` into disjoint flat sets, one a category that occurs.
    """

    busy: iv.Intervals
    exclusive: dict[Category, iv.Intervals]
    span_ns: int

    @property
    def busy_ns(self) -> int:
        """Time with any operation."""
        return self.busy.total

    @property
    def idle_ratio(self) -> float | None:
        """Share of the span without any operation; None if nothing ran."""
        return 1 - self.busy_ns / self.span_ns if self.span_ns else None


@once_per_trace
def device_activity(trace: Trace) -> DeviceActivity:
    """Busy time by category; everything is empty if there is no device."""
    ops = trace.device_ops
    if ops is None or not len(ops):
        return DeviceActivity(iv.NONE, {}, 0)
    category = np.where(own_work(trace), category_of_device_ops(trace), NO_CATEGORY)
    own = category != NO_CATEGORY
    start, end = ops["start_ns"], ops.end_ns
    of = {}
    for code in ORDER:
        mine = np.flatnonzero(category == code)
        if len(mine):
            of[code] = iv.flatten(start[mine], end[mine])
    busy, exclusive = iv.NONE, {}
    for code, when in of.items():
        exclusive[code] = iv.subtract(when, busy)
        busy = iv.union(busy, when)
    return DeviceActivity(
        busy=busy,
        exclusive=exclusive,
        span_ns=int(end[own].max() - start[own].min()) if own.any() else 0,
    )
