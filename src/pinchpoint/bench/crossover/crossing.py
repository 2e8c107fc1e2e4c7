"""Where two curves of time over size cross, as an interval."""

from collections.abc import Callable, Iterable
from itertools import pairwise
from math import ceil, exp, sqrt

import numpy as np

from pinchpoint.frozen import dataclass

NARROW = 1.15  # stop when the interval is this narrow
ABOVE_A_CALL = 4.0  # times the shortest time: three quarters or more of it is work
MOST_LOOKS = 6  # further sizes measured between the two that bracket the crossing


@dataclass(frozen=True)
class Time:
    """The median time of one size, with its interval; nanoseconds."""

    median_ns: float
    low_ns: float
    high_ns: float


@dataclass(frozen=True)
class Point:
    """One size: the CPU, the GPU alone, the GPU with transfers; None where not measured."""

    size: int
    cpu: Time
    gpu: Time | None = None
    gpu_with_transfers: Time | None = None


@dataclass(frozen=True)
class Crossing:
    """From where the GPU is faster.

    ``low``: the largest size at which the CPU is surely faster, ``high``: the smallest from which
    on the GPU surely is. None: beyond the sizes measured, on that side. ``estimate``: where
    straight lines through the logarithms of the neighbours meet; None if the curves do not cross.
    """

    low: int | None
    high: int | None
    estimate: float | None
    verdict: str  # crosses, always gpu, always cpu, not measured


def crossing(points: Iterable[Point], gpu: Callable[[Point], Time | None]) -> Crossing:
    """The crossing of ``cpu`` with ``gpu(point)``."""
    known = [(p.size, p.cpu, t) for p in sorted(points, key=lambda p: p.size) if (t := gpu(p))]
    if not known:
        return Crossing(None, None, None, "not measured")
    cpu_wins = [size for size, cpu, other in known if cpu.high_ns < other.low_ns]
    low = max(cpu_wins, default=None)
    gpu_wins = [
        size for size, cpu, other in known if other.high_ns < cpu.low_ns and size > (low or 0)
    ]
    high = min(gpu_wins, default=None)
    estimate = _meet(known)
    if estimate is None:
        faster = "always gpu" if known[0][2].median_ns < known[0][1].median_ns else "always cpu"
        return Crossing(low, high, None, faster)
    return Crossing(low, high, estimate, "crosses")


def _meet(known: "list[tuple[int, Time, Time]]") -> float | None:
    """The last place where the ratio of the medians changes from CPU-faster to GPU-faster."""
    size = np.log([s for s, _, _ in known])
    ratio = np.log([other.median_ns / cpu.median_ns for _, cpu, other in known])
    for i in reversed(range(len(known) - 1)):
        if ratio[i] > 0 >= ratio[i + 1]:
            share = ratio[i] / (ratio[i] - ratio[i + 1])
            return exp(float(size[i] + share * (size[i + 1] - size[i])))
    return None


def next_size(points: "list[Point]", gpu: Callable[[Point], Time | None]) -> int | None:
    """Where to measure next to narrow the crossing; None if it is narrow enough or not there.

    The middle, on a log scale, of the two neighbours between which the medians cross.
    """
    known = [(p.size, p.cpu, t) for p in sorted(points, key=lambda p: p.size) if (t := gpu(p))]
    for (a, cpu_a, gpu_a), (b, cpu_b, gpu_b) in reversed(list(pairwise(known))):
        if gpu_a.median_ns > cpu_a.median_ns and gpu_b.median_ns <= cpu_b.median_ns:
            middle = ceil(sqrt(a * b))
            return middle if b / a > NARROW and a < middle < b else None
    return None


def slope(points: Iterable[Point], of: Callable[[Point], Time | None]) -> float | None:
    """Exponent of the time over the size (log-log fit): 1 is linear.

    Sizes whose time is mostly the cost of a call say nothing of it; None where fewer than two are
    left.
    """
    known = [(p.size, t.median_ns) for p in sorted(points, key=lambda p: p.size) if (t := of(p))]
    least = min((t for _, t in known), default=0.0)
    upper = [(s, t) for s, t in known[len(known) // 2 :] if t >= ABOVE_A_CALL * least]
    if len(upper) < 2:
        return None
    return float(np.polyfit(np.log([s for s, _ in upper]), np.log([t for _, t in upper]), 1)[0])
