"""What was sampled beside the recording, by device: values of the same look in one row."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Ints, Mask

BUSY_RATIO = 0.5  # a look in which the device had work most of the time


@dataclass(frozen=True, eq=False)
class Looks:
    """All looks at one device, or at the host; ``known[name]``: where ``values[name]`` holds."""

    time_ns: Ints
    values: Mapping[str, Floats]
    known: Mapping[str, Mask]

    def __len__(self) -> int:
        return len(self.time_ns)

    def where_known(self, name: str) -> Mask:
        """Looks that have this value."""
        return self.known.get(name, np.zeros(len(self), np.bool_))

    def of(self, name: str, chosen: Mask | None = None) -> Floats:
        """The values that are known, among the chosen looks."""
        known = self.where_known(name)
        mask = known if chosen is None else known & chosen
        return self.values[name][mask] if name in self.values else np.zeros(0)

    def median(self, name: str, chosen: Mask | None = None) -> float | None:
        """The middle value; None if there is none."""
        found = self.of(name, chosen)
        return float(np.median(found)) if len(found) else None

    def most(self, name: str, chosen: Mask | None = None) -> float | None:
        """The largest value; None if there is none."""
        found = self.of(name, chosen)
        return float(found.max()) if len(found) else None

    @property
    def busy(self) -> Mask:
        """Looks at which the device had work; all of them if nothing says so."""
        if "any_kernel_ratio" not in self.values:
            return np.ones(len(self), np.bool_)
        known = self.where_known("any_kernel_ratio")
        busy: Mask = ~known | (self.values["any_kernel_ratio"] >= BUSY_RATIO)
        return busy


@once_per_trace
def device_looks(trace: Trace) -> Mapping[int, Looks]:
    """Looks by device number; empty without telemetry."""
    counters = trace.counters
    if counters is None or not len(counters):
        return {}
    known = counters.known("device")
    numbers = np.unique(counters["device"][known])
    return {
        int(number): looks
        for number in numbers
        if (looks := _looks(trace, known & (counters["device"] == number))) is not None
    }


@once_per_trace
def host_looks(trace: Trace) -> Looks | None:
    """Looks at the host; None without telemetry."""
    counters = trace.counters
    if counters is None or not len(counters):
        return None
    return _looks(trace, ~counters.known("device"))


def _looks(trace: Trace, rows: Mask) -> Looks | None:
    counters = trace.counters
    if counters is None or not rows.any():
        return None
    times, place = np.unique(counters["time_ns"][rows], return_inverse=True)
    names, values = counters["name"][rows], counters["value"][rows]
    pivot: dict[str, Floats] = {}
    known: dict[str, Mask] = {}
    for name in np.unique(names):
        mine = names == name
        text = trace.names[name]
        pivot[text], known[text] = np.zeros(len(times)), np.zeros(len(times), np.bool_)
        pivot[text][place[mine]] = values[mine]
        known[text][place[mine]] = True
    return Looks(times, pivot, known)
