"""Whether each step of the run is longer than the one before, and which piece of it grows.

A trend of the medians of chronological parts: the test of Mann (Econometrica 13, 1945) and Kendall,
the slope of Theil and Sen with the interval of its ranks (Sen, JASA 63, 1968).

A trend alone may be a machine that slows down, or others that come to use it. Work that grows is
told from both by three things together: time grows in every quarter of the run and does not level
off, as heat does, nor jump, as load by others does; it grows in a few places of the program while
the rest stays as it was; and so does what the program keeps, or the work of the thread itself.

Where others use the machine, steps take now long and now short, and no trend of theirs is known.
What the thread of a program without a device spends on a core is not theirs, and is asked instead.
Where that more than doubles at a few places and nowhere else, it is the program's also if it levels
off or came at once: values that a processor is slow with, a cache that is full.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from math import ceil, floor, sqrt

import numpy as np

from pinchpoint.analysis.host.frames import Owner, PythonFrame, frame_of, in_recorder
from pinchpoint.analysis.statistics import median
from pinchpoint.analysis.steps.timed import timed_by_run
from pinchpoint.frozen import dataclass
from pinchpoint.trace import RunSamples, Trace, once_per_trace
from pinchpoint.trace.run_samples import RunPart

_Length = Callable[[RunPart], int]  # of one step of a part


def _by_clock(part: RunPart) -> int:
    return part.p50_ns


def _by_core(part: RunPart) -> int:
    return part.cpu_ns


FEWEST_PARTS = 8  # 28 pairs: a trend without exception has a deviate of 3.3
SURE = 3.1  # deviates: one in a thousand by chance, on one side
LEAST_RATIO = 0.1  # by which the last quarter is longer: thrice what two runs of one program differ
# Between two quarters: a line has a third, a square half, load by others all.
MOST_OF_GROWTH_RATIO = 0.8
# Of time on a core: a neighbour on the same core, or in its caches, at most doubles it.
LEAST_STEP_UP_RATIO = 2.2
LEVELS_OFF_RATIO = 0.5  # the slope of the second half to the first: a line has 1, heat far less
EXPLAINED_RATIO = 0.6  # of the growth, by the places that are named
MOSTLY_RATIO = 0.5  # of the growth, surely at the places by late looks alone: most of it
REST_RATIO = 0.25  # the rest's relative growth to the step's: of a slower machine it is 1
LEAST_REST_RATIO = 0.2  # of the step, early: with less beside the places nothing is compared
MOST_PLACES = 3  # as many as a reader looks at; with more, any step would be explained by them
FEWEST_LOOKS = 12  # in a quarter: fewer have no share
SHARE_SURE = 2.33  # deviates of the difference of two shares: one in a hundred by chance
# Of what is held, by which it must grow in the run: above what a list of losses takes.
KEPT_RATIO = 0.005
OWN_WORK_RATIO = 0.5  # of the growth of the step, in time on a core of its thread


@dataclass(frozen=True)
class GrowingPlace:
    """A function of the program with more time in each step; of one step, early and late."""

    at: PythonFrame
    early_ns: int
    late_ns: int

    @property
    def more_ns(self) -> int:
        """What a late step takes here beyond an early one."""
        return self.late_ns - self.early_ns


@dataclass(frozen=True)
class Trend:
    """Of the medians of the parts."""

    deviates: float  # Mann-Kendall
    slope_ns: float  # by step, as of Theil and Sen
    slope_range_ns: tuple[float, float]  # 99 %


@dataclass(frozen=True)
class Growth:
    """Steps that become longer and longer; ``why_not`` where it is not decided that work grows."""

    first: int  # number of a step in the middle of the early quarter
    last: int
    early_ns: int  # the typical step of the first quarter
    late_ns: int
    mean_ns: int  # of all typical steps of the run
    steps: int
    trend: Trend
    places: tuple[GrowingPlace, ...]  # most growth first; none where it is the device's
    signs: tuple[str, ...]  # what grew with it
    on_core: bool = False  # all times are those of the thread on a core
    clock_ratio: float = 1.0  # what a step takes by the clock to these times, over the run
    ends: bool = False  # came at once, or levels off: late steps are longer, not ever longer
    why_not: str = ""


@once_per_trace
def growth(trace: Trace) -> Growth | None:
    """How the steps of the run grew; None where they did not, or where too few were timed."""
    samples = trace.run.samples if trace.run else None
    parts = [] if samples is None else [p for p in samples.parts if p.steps]
    if samples is None or len(parts) < FEWEST_PARTS:
        return None
    found = _grown(samples, parts, _by_clock)
    if (found is None or found.why_not) and not any(p.device_bytes for p in parts):
        on_core = _grown(samples, parts, _by_core)
        if found is None or (on_core is not None and not on_core.why_not):
            return on_core
    return found


def _grown(samples: RunSamples, parts: Sequence[RunPart], length: _Length) -> Growth | None:
    """By one length of the parts; None where it has no trend."""
    trend = _trend([_middle(p) for p in parts], [length(p) for p in parts])
    quarters = _quarters(parts)
    times = [_typical_ns(q, length) for q in quarters]
    grown = times[-1] / max(times[0], 1) - 1
    if trend.deviates < SURE or trend.slope_range_ns[0] <= 0 or grown < LEAST_RATIO:
        return None
    most = _places(samples, quarters[0], quarters[-1], length)
    some = (most[:n] for n in range(1, len(most) + 1))  # as few as explain it
    places = next((few for few in some if _explain(few, times, length)), most)
    ends = _ends(quarters, times, length)
    signs = _signs(parts, quarters, times)
    steps = sum(p.steps for p in parts)
    mean = sum(p.steps * length(p) for p in parts) / steps
    clock = sum(p.steps * _by_clock(p) for p in parts) / steps
    why_not = _why_not(samples, quarters, times, places, signs, ends, length)
    if not why_not and not _explain(places, times, length):
        places = ()  # the device's work grows, and the host waits for it at any place
    return Growth(
        first=round(_middle_of(quarters[0])),
        last=round(_middle_of(quarters[-1])),
        early_ns=times[0],
        late_ns=times[-1],
        mean_ns=round(mean),
        steps=steps,
        trend=trend,
        places=places,
        signs=signs,
        on_core=length is _by_core,
        clock_ratio=clock / max(mean, 1.0),
        ends=bool(ends),
        why_not=why_not,
    )


def _why_not(
    samples: RunSamples,
    quarters: Sequence[Sequence[RunPart]],
    times: Sequence[int],
    places: Sequence[GrowingPlace],
    signs: Sequence[str],
    ends: str,
    length: _Length,
) -> str:
    if ends and not _is_own(times, length):
        return ends
    if not _explain(places, times, length):
        if not ends and _device_keeps_more([p for q in quarters for p in q], times):
            return ""
        return ends or "all that they do takes longer, as on a machine that becomes slower"
    if not _differ(samples, quarters, times, places):
        return "too few looks at the run tell where"
    return "" if signs else "nothing that they keep or do grew with them"


def _ends(quarters: Sequence[Sequence[RunPart]], times: Sequence[int], length: _Length) -> str:
    """Why late steps will not become longer still; empty where they will."""
    more = np.diff(times)
    if more.min() <= 0 or more.max() > MOST_OF_GROWTH_RATIO * more.sum():
        return "they did so at once, as when other programs come to use the machine"
    if _slope(quarters[2:], length) < LEVELS_OFF_RATIO * _slope(quarters[:2], length):
        return "their growth levels off, as when a machine becomes warm or a cache fills"
    return ""


def _is_own(times: Sequence[int], length: _Length) -> bool:
    """Whether no slower or fuller machine explains it: time on a core more than doubled. The rest
    of a step may have grown with it, as work on more and more memory empties all caches."""
    return length is _by_core and times[-1] >= LEAST_STEP_UP_RATIO * times[0]


def _explain(places: Sequence[GrowingPlace], times: Sequence[int], length: _Length) -> bool:
    """Whether the growth lies at these places, while the rest of the step stays as it was."""
    rest = [time - sum(at) for time, at in zip(times[:: len(times) - 1], _of(places), strict=True)]
    here = sum(p.more_ns for p in places) >= EXPLAINED_RATIO * (times[-1] - times[0])
    return here and (_is_own(times, length) or not same_pace(rest, times))


def _device_keeps_more(parts: Sequence[RunPart], times: Sequence[int]) -> bool:
    """Whether what is held of the device grew at least as much as the step: work on all that is
    kept does not grow faster than that, and a machine that becomes slower keeps no more."""
    held = [part.device_bytes or 0 for part in parts]
    if not min(held) or held[-1] / held[0] < times[-1] / max(times[0], 1):
        return False
    return _trend(list(range(len(held))), held).deviates >= SURE


def _differ(
    samples: RunSamples,
    quarters: Sequence[Sequence[RunPart]],
    times: Sequence[int],
    places: Sequence[GrowingPlace],
) -> bool:
    """Whether the share of the places, by looks, differs by more than chance early and late."""
    period_us = 1e6 * samples.seconds / max(samples.looks, 1)
    looks, shares = [], []
    for q, ns in zip((0, -1), _of(places), strict=True):
        seen_us = sum(us for part in quarters[q] for _, us in part.seen)
        looks.append(seen_us / max(period_us, 1.0))
        shares.append(sum(ns) / max(times[q], 1))
    if looks[1] < FEWEST_LOOKS:
        return False
    # However few looks there were early: it took no more than the whole step did.
    least = shares[1] - SHARE_SURE * sqrt(max(shares[1] * (1 - shares[1]), 0.0) / looks[1])
    here = least * times[-1] - times[0] >= MOSTLY_RATIO * (times[-1] - times[0])
    if here or looks[0] < FEWEST_LOOKS:
        return here
    both = min((shares[0] * looks[0] + shares[1] * looks[1]) / sum(looks), 1.0)
    spread = sqrt(both * (1 - both) * (1 / looks[0] + 1 / looks[1]))
    return shares[1] - shares[0] > SHARE_SURE * spread


def _of(places: Sequence[GrowingPlace]) -> tuple[list[int], list[int]]:
    return [p.early_ns for p in places], [p.late_ns for p in places]


def same_pace(rest: Sequence[int], times: Sequence[int], most_ratio: float = REST_RATIO) -> bool:
    """Whether the rest of the step became longer, too, or there is none to compare with."""
    if rest[0] < LEAST_REST_RATIO * times[0]:
        return True
    return rest[1] / max(rest[0], 1) - 1 > REST_RATIO * (times[-1] / max(times[0], 1) - 1)


def _middle(part: RunPart) -> float:
    return part.first + part.steps / 2


def _middle_of(parts: Sequence[RunPart]) -> float:
    return median(_middle(part) for part in parts)


def _quarters(parts: Sequence[RunPart]) -> list[Sequence[RunPart]]:
    cuts = [len(parts) * q // 4 for q in range(5)]
    return [parts[a:b] for a, b in pairwise(cuts)]


def _typical_ns(parts: Sequence[RunPart], length: _Length) -> int:
    return round(median(length(part) for part in parts))


def _trend(at: Sequence[float], values: Sequence[float]) -> Trend:
    n = len(values)
    pairs = list(combinations(range(n), 2))
    score = sum(int(np.sign(values[j] - values[i])) for i, j in pairs)
    spread = sqrt(n * (n - 1) * (2 * n + 5) / 18)
    slopes = sorted((values[j] - values[i]) / max(at[j] - at[i], 1e-9) for i, j in pairs)
    reach = 2.576 * spread  # of a normal deviate, 99 % on both sides
    low = max(floor((len(slopes) - reach) / 2), 0)
    high = min(ceil((len(slopes) + reach) / 2), len(slopes) - 1)
    deviates = (abs(score) - 1) / spread if score else 0.0
    sign = 1 if score > 0 else -1
    return Trend(sign * deviates, median(slopes), (slopes[low], slopes[high]))


def _slope(quarters: Sequence[Sequence[RunPart]], length: _Length) -> float:
    parts = [part for quarter in quarters for part in quarter]
    return _trend([_middle(p) for p in parts], [length(p) for p in parts]).slope_ns


def _places(
    samples: RunSamples, early: Sequence[RunPart], late: Sequence[RunPart], length: _Length
) -> tuple[GrowingPlace, ...]:
    """Functions whose time grew most; at the line at which it did."""
    before, after = _by_line(samples, early, length), _by_line(samples, late, length)
    more: Counter[tuple[str, str]] = Counter()
    sums: dict[tuple[str, str], list[float]] = {}
    for place, found in ((0, before), (1, after)):
        for frame, ns in found.items():
            key = (frame.file, frame.function)
            sums.setdefault(key, [0.0, 0.0])[place] += ns
            more[key] += round(ns if place else -ns)
    return tuple(
        GrowingPlace(_line(key, before, after), round(sums[key][0]), round(sums[key][1]))
        for key, ns in more.most_common(MOST_PLACES)
        if ns > 0 and sums[key][1] > (1 + LEAST_RATIO) * sums[key][0]
    )


def _line(
    key: tuple[str, str], before: dict[PythonFrame, float], after: dict[PythonFrame, float]
) -> PythonFrame:
    lines = [frame for frame in after if (frame.file, frame.function) == key]
    return max(lines, key=lambda frame: after[frame] - before.get(frame, 0.0))


def _by_line(
    samples: RunSamples, parts: Sequence[RunPart], length: _Length
) -> dict[PythonFrame, float]:
    """Nanoseconds of one step at each line of the program.

    While the thread of the steps waits for threads that Python did not start, autograd's, and
    these are at lines of the program, the time is theirs.
    """
    us: dict[PythonFrame, float] = {}
    seen = [row for part in parts for row in part.seen]
    total = sum(n for _, n in seen)
    for stack, n in seen:
        frame = _own(samples.spelt(stack))
        if frame is not None:
            us[frame] = us.get(frame, 0.0) + n
    waits = _most_of([(s, n) for s, n in seen if _backward(samples.spelt(s))], samples)
    for stack, n in [row for part in parts for row in part.beside]:
        frame = _own(samples.spelt(stack))
        if frame is not None and waits is not None:
            taken = min(n, us[waits])
            us[waits] -= taken
            us[frame] = us.get(frame, 0.0) + taken
    typical = _typical_ns(parts, length)
    return {frame: typical * n / max(total, 1) for frame, n in us.items()}


def _most_of(seen: list[tuple[int, int]], samples: RunSamples) -> PythonFrame | None:
    at: Counter[PythonFrame] = Counter()
    for stack, n in seen:
        if (frame := _own(samples.spelt(stack))) is not None:
            at[frame] += n
    return at.most_common(1)[0][0] if at else None


def _backward(frames: tuple[str, ...]) -> bool:
    return any("torch/autograd/" in frame for frame in frames)


def _own(frames: tuple[str, ...]) -> PythonFrame | None:
    """The innermost frame of the program's own code, with its lambdas; else of a library."""
    if in_recorder(frames):
        return None
    spelt = [frame for name in frames if (frame := frame_of(name)) is not None]
    for owner in (Owner.USER, Owner.LIBRARY):
        for frame in spelt:
            if frame.owner is owner:
                return frame
    return None


_Count = Callable[[RunPart], int | None]
_KEPT: tuple[tuple[str, _Count], ...] = (
    ("objects that Python holds", lambda part: part.objects),
    ("memory of the host", lambda part: part.resident_bytes),
    ("memory of the device", lambda part: part.device_bytes),
)


def _signs(
    parts: Sequence[RunPart], quarters: Sequence[Sequence[RunPart]], times: Sequence[int]
) -> tuple[str, ...]:
    """What grew with the steps and would not on a machine that becomes slower."""
    found = []
    for what, count in _KEPT:
        values = [n for part in parts if (n := count(part)) is not None]
        if len(values) < FEWEST_PARTS or values[-1] < (1 + KEPT_RATIO) * values[0]:
            continue
        if _trend(list(range(len(values))), values).deviates >= SURE:
            found.append(f"{what}, {values[-1] / max(values[0], 1):.2f} ×")
    if any(part.device_bytes for part in parts):
        return tuple(found)  # a thread that waits for a device is on a core, too
    cpu = [median(p.cpu_ns for p in quarter) for quarter in (quarters[0], quarters[-1])]
    if cpu[1] - cpu[0] >= OWN_WORK_RATIO * (times[-1] - times[0]):
        found.append(f"time of the thread on a core, {cpu[1] / max(cpu[0], 1):.2f} ×")
    return tuple(found)


def grown_on_core_ns(trace: Trace) -> int:
    """Of ``grown_ns``, what the thread of the steps itself was on a core for."""
    samples, ns = trace.run.samples if trace.run else None, grown_ns(trace)
    if samples is None or not ns:
        return 0
    quarters = _quarters([p for p in samples.parts if p.steps])
    more, on_core = (
        _typical_ns(quarters[-1], of) - _typical_ns(quarters[0], of) for of in (_by_clock, _by_core)
    )
    return round(ns * min(max(on_core / max(more, 1), 0.0), 1.0))


def grown_ns(trace: Trace) -> int:
    """By how much the run's mean step is longer than those around the recording, as steps grow; 0
    where they do not, or nothing of the program grew with them: it may have been the machine."""
    found, timed = growth(trace), timed_by_run(trace)
    if found is None or (found.why_not and not found.signs) or not timed:
        return 0
    return max(round(found.mean_ns * found.clock_ratio) - round(median(timed)), 0)
