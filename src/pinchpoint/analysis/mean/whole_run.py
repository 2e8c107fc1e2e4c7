"""Where the time of a whole run goes, by looks at its main thread.

A look finds a thread at one place. What it did there is told by three measured things: its time on
a core since the look before, whether somebody held the interpreter's lock when the look was due,
and the function of the kernel in which it slept. Shares are of time; how sure they are follows from
the number of looks (Wilson, JASA 22, 1927).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt

from pinchpoint.analysis.host.frames import PythonFrame, frame_of, in_numeric_package
from pinchpoint.analysis.mean.stacks import called, own_frame
from pinchpoint.analysis.mean.ways import Way, asleep_us, imports, is_own, wait_of
from pinchpoint.frozen import dataclass
from pinchpoint.trace import RunSamples, Trace, once_per_trace
from pinchpoint.trace.run_samples import SampledThread, Spent

NORMAL_95 = 1.96  # deviates of a normal distribution
# Of the time at a place after which the lock was held. A call that gives the lock up has none but
# by accident; in bytecode it is all, less where the looking thread itself came late.
HELD_RATIO = 0.25
# Where the looking thread waits for its own core for longer than a switch interval, at each look,
# what is left of its lateness is uncertain: then most of it has to be.
BUSY_HELD_RATIO = 0.45
# Of the time at one call, after which the lock was held. A call that keeps it has all of it, one
# that gives it up none. Between lie calls at which looks came that waited for the lock: the first
# that gives it up ends that wait, so that this part may have passed before the call.
BEFORE_CALL_RATIOS = (0.1, 0.7)
SWITCH_INTERVAL_NS = 5_000_000  # of the interpreter
ONE_CALL_RATIO = 0.5  # of the time at a place: then it is not spread over lines of Python
MOSTLY_RATIO = 0.7  # of the time at a place, at one call: then the place is that call
Spot = tuple[str, str]  # the innermost line, and the call that it was at
NS_PER_US = 1000  # looks are counted in microseconds


@dataclass(frozen=True)
class Share:
    """A part of the time of a thread, and between what it lies with 95 % confidence."""

    ns: int
    of_ns: int
    range_ns: tuple[int, int]
    looks: int

    def less(self, ns: int) -> "Share":
        """Without so much of it."""
        low_ns, high_ns = self.range_ns
        left = max(low_ns - ns, 0), max(high_ns - ns, 0)
        return Share(max(self.ns - ns, 0), self.of_ns, left, self.looks)

    @property
    def ratio(self) -> float:
        """Of all that was looked at."""
        return self.ns / max(self.of_ns, 1)

    @property
    def least_ratio(self) -> float:
        """What is sure."""
        return self.range_ns[0] / max(self.of_ns, 1)


@dataclass(frozen=True)
class RunPlace:
    """A function of the program with all that it called, and what the thread did there."""

    at: PythonFrame | None  # the line with most of it; None: no code of the program was running
    share: Share
    ways: Mapping[Way, int]  # nanoseconds
    inside: str | None  # the library's function that most of it is in: ``numpy.linalg.eigh``
    inside_ratio: float
    call: str  # what most of it is at in the program's own line: ``pattern.match()``; empty: none
    call_ratio: float
    lines: int  # of the function that were seen
    call_held_ratio: float = 1.0  # of the time at ``call``, after which the lock was held

    def less(self, ns: int) -> "RunPlace":
        """Without so much of its time."""
        return replace(self, share=self.share.less(ns)) if ns else self

    @property
    def main_way(self) -> Way:
        """What it mostly does, on a core or waiting for anything but that."""
        return max(self.ways, key=lambda way: (way is not Way.NO_CORE, self.ways[way]))

    @property
    def doing_ns(self) -> int:
        """Its time without that in which it had no core."""
        return sum(self.ways.values()) - self.ways.get(Way.NO_CORE, 0)


@dataclass(frozen=True)
class RunAccount:
    """Everything that a main thread did, from the start of the program to its end."""

    total_ns: int
    looks: int
    ways: Mapping[Way, int]  # nanoseconds; they add up to ``total_ns``
    places: tuple[RunPlace, ...]  # most time first; imports left out


@dataclass(frozen=True)
class Cores:
    """What threads lacked of them."""

    queued_ns: int  # that the threads that are looked at were ready to run and had none
    held_ratio: float = HELD_RATIO  # of the time at a place, from which on it is the lock's

    @classmethod
    def of(cls, samples: RunSamples, threads: Sequence[SampledThread]) -> "Cores":
        """Of some threads of a run."""
        each_ns = (samples.looker_queued_ns or 0) / max(samples.looks, 1)
        held = BUSY_HELD_RATIO if each_ns > SWITCH_INTERVAL_NS else HELD_RATIO
        return cls(sum(thread.queued_ns or 0 for thread in threads), held)


def only_samples(trace: Trace) -> bool:
    """Whether nothing of the program was recorded but looks at its threads."""
    tables = (trace.host_ops, trace.device_ops, trace.api_calls, trace.allocations, trace.snapshot)
    sampled = trace.run is not None and trace.run.samples is not None
    return sampled and all(table is None for table in tables)


@once_per_trace
def uses_framework(trace: Trace) -> bool:
    """Whether a thread of the run was seen at work inside torch or jax."""
    samples = trace.run.samples if trace.run else None
    threads = () if samples is None else samples.threads
    works = (one for t in threads for one in t.spent if not imports(one.frames))
    return any(frame.startswith(_FRAMEWORKS) for one in works for frame in one.frames)


_FRAMEWORKS = ("torch/", "jax/", "jaxlib/", "cupy/")


@once_per_trace
def run_account(trace: Trace) -> RunAccount | None:
    """None where the run was not looked at, or by a version that did not measure time."""
    samples = trace.run.samples if trace.run else None
    spent = [] if samples is None else main_spent(samples)
    if samples is None or not spent:
        return None
    course = trace.run.course if trace.run else None
    seen_ns = NS_PER_US * sum(one.us for one in spent)
    total_ns = max(course.total_ns if course else 0, seen_ns)
    cores = Cores.of(samples, _main_threads(samples))
    ways = Counter(_ways_of(spent, cores))
    _take_garbage(ways, samples.garbage.ns if samples.garbage else 0)
    ways[Way.UNSEEN] = total_ns - sum(ways.values())
    return RunAccount(
        total_ns,
        sum(one.looks for one in spent),
        {way: ns for way, ns in ways.most_common() if ns > 0},
        places_of(spent, cores, seen_ns),
    )


def _take_garbage(ways: Counter[Way], garbage_ns: int) -> None:
    """Collections, timed one by one, apart from what else keeps the lock; where looks told too
    little of that, from what gives it up. They had a core for as much of their time as all."""
    ran_ns = ways[Way.INTERPRETER] + ways[Way.OUTSIDE]
    left_ns = round(garbage_ns * ran_ns / max(ran_ns + ways[Way.NO_CORE], 1))
    for way in (Way.INTERPRETER, Way.OUTSIDE):
        part_ns = min(left_ns, ways[way])
        ways[way] -= part_ns
        ways[Way.GARBAGE] += part_ns
        left_ns -= part_ns


def _main_threads(samples: RunSamples) -> list[SampledThread]:
    found = [t for t in samples.threads if t.main][:1]
    return [*([] if samples.before is None else [samples.before]), *found]


def main_spent(samples: RunSamples) -> list[Spent]:
    """All that was seen of the main thread, before its steps and since."""
    return [one for thread in _main_threads(samples) for one in thread.spent]


def places_of(spent: Sequence[Spent], cores: Cores, of_ns: int) -> tuple[RunPlace, ...]:
    """The program's functions by their time; what they import is no work of theirs."""
    work = [one for one in spent if not imports(one.frames)]
    scarce = _scarce(work, cores.queued_ns)
    alike: dict[tuple[str, str] | None, list[Spent]] = {}
    for one in work:
        alike.setdefault(_function(one), []).append(one)
    found = []
    for group in alike.values():
        holds = _holds_lock(group, cores.held_ratio)
        before = {} if holds else _before_calls(group)
        ways = _ways(group, scarce, before, holds=holds)
        found.append(_place(group, ways, before, (of_ns, spent)))
    return tuple(sorted(found, key=lambda place: -place.share.ns))


def _ways_of(spent: Sequence[Spent], cores: Cores) -> Mapping[Way, int]:
    ways = Counter({Way.IMPORT: NS_PER_US * sum(o.us for o in spent if imports(o.frames))})
    for place in places_of(spent, cores, 1):
        ways.update(place.ways)
    return ways


def _place(
    group: list[Spent],
    ways: Mapping[Way, int],
    before: Mapping[Spot, float],
    of: tuple[int, Sequence[Spent]],
) -> RunPlace:
    of_ns, every = of
    frames: Counter[PythonFrame] = Counter()
    inside: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    at_call, held = Counter[str](), Counter[str]()
    before_us = sum(before.get(_spot(one), 0.0) * one.us for one in group)
    for one in group:
        if (frame := own_frame(one.frames)) is not None:
            frames[frame] += one.us
        if (name := called(one.frames)) is not None:
            inside[name] += one.us
        if one.doing and is_own(one.frames[:1]):
            calls[one.doing] += round(one.us * (1 - before.get(_spot(one), 0.0)))
            at_call[one.doing] += one.us
            held[one.doing] += one.held_us
    us = sum(one.us for one in group)
    name, name_us = next(iter(inside.most_common(1)), (None, 0))
    call, call_us = next(iter(calls.most_common(1)), ("", 0))
    return RunPlace(
        next(iter(frames.most_common(1)), (None, 0))[0],
        _opened(share(us, every, of_ns, sum(one.looks for one in group)), before_us / max(us, 1)),
        ways,
        name,
        name_us / max(us, 1),
        call,
        call_us / max(us, 1),
        len(frames),
        held[call] / max(at_call[call], 1),
    )


def _holds_lock(group: Sequence[Spent], held_ratio: float) -> bool:
    """Whether the thread holds the lock at a place, as all looks at it tell together."""
    awake = sum(one.us - asleep_us(one) for one in group)
    held = sum(one.held_us for one in group)
    return held >= held_ratio * max(awake, 1) and not _computes(group)


def _ways(
    group: Sequence[Spent], scarce: float, before: Mapping[Spot, float], *, holds: bool
) -> Mapping[Way, int]:
    """What a thread does at a place."""
    out: Counter[Way] = Counter()
    awake = on_core = 0
    for one in group:
        asleep = asleep_us(one)
        out[wait_of(one)] += asleep * NS_PER_US
        awake += one.us - asleep
        on_core += min(one.on_core_us, one.us - asleep)
    lacking = round(scarce * (awake - on_core))
    early = sum(before.get(_spot(one), 0.0) * one.us for one in group) / max(awake, 1)
    did = (awake - lacking) * NS_PER_US
    python = did if holds else round(min(early, 1.0) * did)
    out[Way.INTERPRETER] += python
    out[Way.OUTSIDE] += did - python
    out[Way.NO_CORE] += lacking * NS_PER_US
    return {way: ns for way, ns in out.items() if ns > 0}


def _computes(group: Sequence[Spent]) -> bool:
    """Whether most of it is one call of a numeric library: some keep the lock meanwhile."""
    spots: Counter[Spot] = Counter()
    for one in group:
        spots[_spot(one)] += one.us
    (name, doing), us = spots.most_common(1)[0]
    frame = frame_of(name)
    numeric = frame is not None and in_numeric_package(frame.file)
    return numeric and bool(doing) and us >= ONE_CALL_RATIO * sum(spots.values())


def _spot(one: Spent) -> Spot:
    return one.frames[0] if one.frames else "", one.doing


def _before_calls(group: Sequence[Spent]) -> dict[Spot, float]:
    """By call, the part of its time that may have passed before it; see BEFORE_CALL_RATIOS."""
    us, held = Counter[Spot](), Counter[Spot]()
    for one in group:
        us[_spot(one)] += one.us
        held[_spot(one)] += one.held_us
    ratios = {spot: held[spot] / max(us[spot], 1) for spot in us if spot[1]}
    least, most = BEFORE_CALL_RATIOS
    return {spot: ratio for spot, ratio in ratios.items() if least <= ratio < most}


def _opened(share: Share, ratio: float) -> Share:
    """A share of which this part may have passed elsewhere."""
    low, high = share.range_ns
    return Share(share.ns, share.of_ns, (round(low * (1 - ratio)), high), share.looks)


def _scarce(work: Sequence[Spent], queued_ns: int) -> float:
    """Of the time in which a thread neither slept nor ran, what it was ready to run in."""
    off = sum(max(one.us - asleep_us(one) - one.on_core_us, 0) for one in work)
    return min(queued_ns / max(off * NS_PER_US, 1), 1.0)


def share(us: int, every: Sequence[Spent], of_ns: int, looks: int) -> Share:
    """Looks far apart weigh more than others, so that fewer of equal weight say as much."""
    whole = max(sum(one.us for one in every), 1)
    squares = sum(one.us * one.us / max(one.looks, 1) for one in every)
    low, high = wilson(us / whole, whole * whole / max(squares, 1.0))
    between = round(low * of_ns), round(high * of_ns)
    return Share(round(us / whole * of_ns), of_ns, between, looks)


def share_of_way(place: RunPlace, way: Way) -> Share:
    """The part of a place's time that passes in one way, as sure as the looks at it make it."""
    ns, whole = place.ways.get(way, 0), place.share
    if not ns or not whole.ns:
        return Share(0, whole.of_ns, (0, 0), 0)
    part = ns / max(sum(place.ways.values()), 1)
    looks = round(whole.looks * part)
    low, high = wilson(ns / max(whole.of_ns, 1), whole.looks / max(whole.ratio, 1e-9))
    return Share(ns, whole.of_ns, (round(low * whole.of_ns), round(high * whole.of_ns)), looks)


def wilson(ratio: float, count: float) -> tuple[float, float]:
    """Between what a share of so many looks lies, with 95 % confidence."""
    if count <= 0:
        return 0.0, 1.0
    z2 = NORMAL_95 * NORMAL_95
    middle = (ratio + z2 / (2 * count)) / (1 + z2 / count)
    root = sqrt(max(ratio * (1 - ratio), 0.0) / count + z2 / (4 * count * count))
    half = NORMAL_95 * root / (1 + z2 / count)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def _function(one: Spent) -> tuple[str, str] | None:
    frame = own_frame(one.frames)
    return None if frame is None else (frame.file, frame.function)
