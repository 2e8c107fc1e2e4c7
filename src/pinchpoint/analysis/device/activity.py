"""When the device was busy, with what, and what ran at the same time.

Busy time is the union of intervals over all streams and devices of the process, never a sum of
durations. Each instant belongs to one category: compute before memsets before collectives
before copies, so that a collective or copy counts only where it is exposed, and of two computing
categories at once the one that stands first in ``ORDER``.
"""

import numpy as np

from pinchpoint.analysis.device.categories import NO_CATEGORY, Category, category_of_device_ops
from pinchpoint.analysis.host.launches import own_work
from pinchpoint.frozen import dataclass
from pinchpoint.trace import DeviceKind, Trace, once_per_trace
from pinchpoint.trace import intervals as iv
from pinchpoint.trace.arrays import Codes, Ints, distinct

COPIES = (
    Category.COPY_H2D,
    Category.COPY_D2H,
    Category.COPY_P2P,
    Category.COPY_OTHER,
)
# Not compute, and exposed where no compute runs at the same time.
EXPOSABLE = (Category.COLLECTIVE, *COPIES)
ORDER = (*(c for c in Category if c not in EXPOSABLE), *EXPOSABLE)

# Two devices that do the same at the same time are each busy for about as long as both together,
# and two that hand work over for half as long.
TURNS_RATIO = 0.75


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


@dataclass(frozen=True)
class OneDevice:
    """One of the devices of the process.

    Its time over the span of all of them together is ``busy_ns``, ``waits_for_others_ns`` and what
    they all idle at once.
    """

    device: int
    name: str | None
    busy_ns: int  # union of its operations
    idle_ratio: float | None  # of the span of all devices together
    kernels: int  # collectives included
    span_ns: int  # from its own first operation to its own last
    own_idle_ratio: float | None  # of its own span
    waits_for_others_ns: int  # another device works, and this one does not
    mostly: str | None  # the kind of work that takes most of its busy time


@once_per_trace
def each_device(trace: Trace) -> tuple[OneDevice, ...]:
    """The devices that did something, by number."""
    ops, together = trace.device_ops, device_activity(trace)
    if ops is None or not together.span_ns:
        return ()
    rows = np.flatnonzero(own_work(trace))
    category = category_of_device_ops(trace)[rows]
    device, starts, ends = ops["device"][rows], ops["start_ns"][rows], ops.end_ns[rows]
    names = {device.number: device.name for device in trace.devices}
    kernel = np.isin(ops["kind"][rows], (DeviceKind.KERNEL, DeviceKind.COLLECTIVE))
    found = []
    for number in distinct(device).tolist():
        mine = device == number
        start, end = starts[mine], ends[mine]
        busy_ns = iv.flatten(start, end).total
        span_ns = int(end.max() - start.min())
        found.append(
            OneDevice(
                device=number,
                name=names.get(number),
                busy_ns=busy_ns,
                idle_ratio=1 - busy_ns / together.span_ns,
                kernels=int((mine & kernel).sum()),
                span_ns=span_ns,
                own_idle_ratio=1 - busy_ns / span_ns if span_ns else None,
                waits_for_others_ns=together.busy_ns - busy_ns,
                mostly=_mostly(category[mine], end - start),
            )
        )
    return tuple(found)


def _mostly(category: Codes, lasted_ns: Ints) -> str | None:
    if not len(category):
        return None
    totals = np.bincount(category, lasted_ns)
    return Category(int(totals.argmax())).label if totals.any() and totals.argmax() else None


def take_turns(trace: Trace) -> bool:
    """Whether several devices share the work one after the other: even the busiest is busy for
    clearly less time than all together."""
    devices, together = each_device(trace), device_activity(trace).busy_ns
    return len(devices) > 1 and max(d.busy_ns for d in devices) < TURNS_RATIO * together


@once_per_trace
def device_activity(trace: Trace) -> DeviceActivity:
    """Busy time by category; everything is empty if there is no device."""
    ops = trace.device_ops
    if ops is None or not len(ops):
        return DeviceActivity(iv.NONE, {}, 0)
    category = np.where(own_work(trace), category_of_device_ops(trace), NO_CATEGORY)
    own = category != NO_CATEGORY
    start, end = ops["start_ns"], ops.end_ns
    busy, exclusive = iv.NONE, {}
    for code in ORDER:
        mine = category == code
        if mine.any():
            whole = bool(mine.all())  # then nothing need be copied
            when = iv.flatten(*((start, end) if whole else (start[mine], end[mine])))
            exclusive[code] = iv.subtract(when, busy)
            busy = iv.union(busy, when)
    return DeviceActivity(
        busy=busy,
        exclusive=exclusive,
        span_ns=int(end[own].max() - start[own].min()) if own.any() else 0,
    )
