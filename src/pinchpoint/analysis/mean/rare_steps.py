"""Steps of the whole run that were far from typical, and why: from the samples of a run folder.

What a far step waited for its batch, collected and saved is known exactly. The rest is told by the
looks that fell into it: the place that holds more of them than it does of typical steps. A step in
which the thread was ready to run for most of the rest, and got no core, is no doing of the program.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import log

from pinchpoint.analysis.host.frames import PythonFrame, is_recorder
from pinchpoint.analysis.mean.stacks import called, kind_of, own_frame, own_functions
from pinchpoint.analysis.replay.predict import (
    comes_in_bursts,
    corrected_step_ns,
    device_busy_ns,
    timed_ns,
)
from pinchpoint.analysis.statistics import median, rounded_mean
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.frozen import dataclass
from pinchpoint.trace import RunSamples, Trace, once_per_trace
from pinchpoint.trace.run_samples import FarStep

FEWEST_STEPS = 10  # of a run; of fewer, half are its beginning
FEWEST_TO_REPEAT = 3  # far steps: two have a distance, and no rhythm
MOST_TRIED = 8  # distances, most frequent first
REGULAR_RATIO = 0.8  # of the steps of a cause: the others are by chance
SEEN_RATIO = 0.5  # of the steps of a rhythm that must be far: windows hide some, and noise
FEWEST_LOOKS = 2  # of one step: a single one falls anywhere
USUAL_RATIO = 0.05  # of typical steps: work that belongs to them
NEARLY_RATIO = 0.9  # of these, for a function inside of it: a look in ten falls beside it by chance
MOSTLY_RATIO = 0.7  # of the looks at a far step were within the function that is named
USUAL_STEP_RATIO = 1.5  # of the typical step: steps of one core shared with another take two
OTHERS_RATIO = 0.25  # of all cores that others use: less hardly takes one from a step
BY_CHANCE = 0.01  # that looks at a usual step fall as those at a far one did: one step in a hundred
EXACT_RATIO = 0.5  # of the excess: then what is timed exactly is the cause
COLLECT = "gc.collect"  # called by the program; collections of Python itself have no such place


@dataclass(frozen=True)
class RarePlace:
    """Where the thread was: the program's own function, and what it had called there."""

    at: PythonFrame | None  # None: no look fell into it, or none at code of the program
    inside: str | None  # "torch.save"; None where the time is the function's own


@dataclass(frozen=True)
class RareCause:
    """Far steps with one cause."""

    kind: GapKind
    place: RarePlace
    steps: tuple[FarStep, ...]  # those whose samples are kept, longest first
    ns_per_step: int  # what it adds to the mean step of the whole run
    longest_ns: int
    usual_ns: int  # its median step
    step_ns: int  # a typical step of the run
    every: int | None  # steps from one to the next, where that is regular
    recurs: bool  # also in the later half of the run
    no_core: bool  # the thread was ready to run and got no core


@once_per_trace
def rare_causes(trace: Trace) -> tuple[RareCause, ...]:
    """Causes of far steps, most time first; empty where the run was not sampled."""
    samples = trace.run.samples if trace.run else None
    if samples is None or samples.count < FEWEST_STEPS or not samples.typical_ns:
        return ()
    alike: _Alike = {}
    typical = _typical(samples)
    for event in samples.events:
        kind, place, ns, no_core = _cause(samples, event, typical)
        alike.setdefault((kind, _function_of(place), no_core), []).append((event, place, ns))
    alike = _of_one_function(samples, alike)
    kept_ns = sum(e.excess_ns for e in samples.events)
    step_ns = max(samples.typical_ns, _device_step_ns(trace))
    lost_ns = min(samples.excess_ns, samples.total_ns - samples.count * step_ns)
    if lost_ns <= 0 or kept_ns <= 0:
        return ()
    causes = [
        _summed(samples, kind, no_core, found, (lost_ns / kept_ns, step_ns))
        for (kind, _, no_core), found in alike.items()
    ]
    return tuple(sorted(causes, key=lambda cause: -cause.ns_per_step))


_Alike = dict[tuple[GapKind, str, bool], list[tuple[FarStep, RarePlace, int]]]
# What was not timed exactly is told by looks, and one step has few of them.
_BY_LOOKS = (GapKind.DISPATCH, GapKind.PYTHON, GapKind.UNRECORDED)


def _function_of(place: RarePlace) -> str:
    return "" if place.at is None else f"{place.at.file}:{place.at.function}"


def _of_one_function(samples: RunSamples, alike: _Alike) -> _Alike:
    """The same with causes joined that are parts of one function of the program.

    A far step of a long function is looked at a few times, each time in another part of it. The
    looks at all such steps tell that function, if hardly any look at typical steps is within it.
    """
    parts = {key: found for key, found in alike.items() if key[0] in _BY_LOOKS and not key[2]}
    around = _around(samples, [s for found in parts.values() for e, _, _ in found for s in e.seen])
    if around is None:
        return alike
    inside = {
        key: found
        for key, found in parts.items()
        if _within(samples, around, [s for event, _, _ in found for s in event.seen])
    }
    if len(inside) < 2:
        return alike
    most = max(inside, key=lambda key: sum(ns for _, _, ns in inside[key]))
    looks = [s for found in inside.values() for event, _, _ in found for s in event.seen]
    place = _with_library(samples, _inner(samples, around, looks), looks)
    joined = [(event, place, event.excess_ns) for found in inside.values() for event, _, _ in found]
    kind = GapKind.PYTHON if most[0] is GapKind.UNRECORDED else most[0]
    rest = {key: found for key, found in alike.items() if key not in inside}
    return {(kind, _function_of(place), False): joined, **rest}


def _with_library(
    samples: RunSamples, at: PythonFrame, seen: Sequence[tuple[int, int]]
) -> RarePlace:
    """A function of the program, and the library's that most of the looks at these steps are in."""
    inside: Counter[str | None] = Counter()
    for stack, looks in seen:
        frames = tuple(name for name in samples.spelt(stack) if not is_recorder(name))
        own = own_frame(frames)
        here = own is not None and (own.file, own.function) == (at.file, at.function)
        inside[called(frames) if here else None] += looks
    name, looks = inside.most_common(1)[0]
    return RarePlace(at, name if looks >= MOSTLY_RATIO * inside.total() else None)


def _within(samples: RunSamples, at: PythonFrame, seen: list[tuple[int, int]]) -> bool:
    """Whether most of these looks are within a function."""
    inside = sum(n for s, n in seen if (at.file, at.function) in own_functions(samples.spelt(s)))
    return inside >= MOSTLY_RATIO * sum(n for _, n in seen) > 0


def _device_step_ns(trace: Trace) -> int:
    """What a typical step takes the device; 0 without one.

    A host that runs ahead of its device has short steps, and a long one where the queue is full or
    it asks for a result. Nothing is lost by that: the steps of the device are as long as the mean.
    A mean of the run that holds far steps is no typical one: the median of steps that were timed
    is, and those recorded are no shorter. Nor is a step shorter than the device's work for it.
    """
    ops = trace.device_ops
    if ops is None or not len(ops):
        return 0
    typical_ns = steps(trace).typical_ns or 0
    usual_ns = corrected_step_ns(trace) or 0
    if comes_in_bursts(trace):
        usual_ns = min(usual_ns, round(median(timed_ns(trace))))
    return max(min(usual_ns, typical_ns), device_busy_ns(trace))


def recurring_ns(trace: Trace) -> int:
    """What the program's own far steps that come again add to the mean step of the run."""
    taken = taken_by_others(trace)
    return sum(c.ns_per_step for c in rare_causes(trace) if c.recurs and c not in taken)


def taken_by_others(trace: Trace) -> tuple[RareCause, ...]:
    """Far steps that had no core while other programs had them: a quieter machine has none."""
    run = trace.run
    if run is None or not run.cores_of_others or not run.cores_there:
        return ()
    if run.cores_of_others < OTHERS_RATIO * run.cores_there:
        return ()
    return tuple(c for c in rare_causes(trace) if c.no_core and not _throttled(c))


def _throttled(cause: RareCause) -> bool:
    """Whether the quota of the program's control group was used up, not the cores."""
    throttled = sum(step.throttled_ns or 0 for step in cause.steps)
    return throttled >= sum(step.queued_ns or 0 for step in cause.steps)


def _summed(
    samples: RunSamples,
    kind: GapKind,
    no_core: bool,
    found: list[tuple[FarStep, RarePlace, int]],
    scale_and_step: tuple[float, int],
) -> RareCause:
    events = tuple(event for event, _, _ in found)
    at = Counter(place for _, place, _ in found).most_common(1)[0][0]
    scale, step_ns = scale_and_step
    last = max(event.step for event in events)
    return RareCause(
        kind=kind,
        place=at,
        steps=events,
        ns_per_step=rounded_mean(round(scale * sum(ns for _, _, ns in found)), samples.count),
        longest_ns=max(event.ns for event in events),
        usual_ns=round(median(event.ns for event in events)),
        step_ns=step_ns,
        every=_every(samples, events),
        recurs=len(events) > 1 and 2 * last >= samples.count,
        no_core=no_core,
    )


def _every(samples: RunSamples, events: tuple[FarStep, ...]) -> int | None:
    """The distance of these far steps, if most are that far apart or a multiple of it.

    Far steps of other causes lie between them; and some of theirs were not seen, in windows.
    """
    numbers = sorted(event.step for event in events)
    if len(numbers) < FEWEST_TO_REPEAT:
        return None
    apart = Counter(b - a for of in (samples.far_steps, numbers) for a, b in pairwise(of))
    regular = [d for d, _ in apart.most_common(MOST_TRIED) if d > 1 and _fits(samples, numbers, d)]
    return max(regular, default=None)


def _fits(samples: RunSamples, numbers: list[int], every: int) -> bool:
    """Whether most of these are one after the other at this distance, and most such steps far."""
    first, alike = Counter(number % every for number in numbers).most_common(1)[0]
    far = sum(number % every == first for number in samples.far_steps)
    last = samples.far_steps[-1] if samples.far_steps else 0
    there = (last - samples.far_steps[0]) // every + 1 if samples.far_steps else 1
    return alike >= REGULAR_RATIO * len(numbers) and far >= SEEN_RATIO * there


def _cause(
    samples: RunSamples, event: FarStep, typical: "_Shares"
) -> tuple[GapKind, RarePlace, int, bool]:
    """Kind, place and nanoseconds of what made a step long; whether it only lacked a core."""
    assert samples.typical_ns is not None
    excess = event.excess_ns
    exact = {
        GapKind.DATA: max(event.wait_ns - samples.typical_wait_ns, 0),
        GapKind.GC: event.gc_ns,
        GapKind.CHECKPOINT: event.save_ns,
    }
    most = max(exact, key=exact.__getitem__)
    if exact[most] >= EXACT_RATIO * excess:
        return most, _place_of_kind(samples, event, most), min(exact[most], excess), False
    # On a machine that is always full every step is queued for its share of the time.
    usual = event.ns * _usually_queued(samples)
    queued = max(round((event.queued_ns or 0) - usual), event.throttled_ns or 0)
    if queued >= EXACT_RATIO * excess:
        return GapKind.UNRECORDED, RarePlace(None, None), min(queued, excess), True
    grown = _grown(samples, event, typical) if typical else {}  # else against nothing
    if event.looks < FEWEST_LOOKS or not grown:  # other threads alone may have been looked at
        return GapKind.UNRECORDED, RarePlace(None, None), excess, False
    (kind, at), ns = max(grown.items(), key=lambda one: one[1])
    usual_ratio = typical.get((kind, at), 0.0)
    if usual_ratio >= USUAL_RATIO and not _alone(samples, event, ns, usual_ratio):
        # The usual work took longer, and why is unseen.
        around = _around(samples, event.seen)
        if around is None:
            return GapKind.UNRECORDED, RarePlace(None, None), excess, False
        return GapKind.PYTHON, RarePlace(around, None), excess, False
    return kind, _innermost(samples, event, kind, at), min(round(ns), excess), False


def _usually_queued(samples: RunSamples) -> float:
    """The share of a typical step in which its thread has no core: at most what it is off one."""
    always = (samples.queued_ns or 0) / max(1e9 * samples.seconds, 1.0)
    typical_ns = USUAL_STEP_RATIO * (samples.typical_ns or 0)
    off = [1 - min(p.cpu_ns / p.p50_ns, 1.0) for p in samples.parts if 0 < p.p50_ns <= typical_ns]
    return min(always, median(off)) if off else always


_Shares = dict[tuple[GapKind, tuple[str, str] | None], float]


def _typical(samples: RunSamples) -> _Shares:
    """Share of typical steps at each place."""
    return _shares(samples, samples.usual, sum(us for _, us in samples.usual))


def _shares(samples: RunSamples, seen: tuple[tuple[int, int], ...], looks: int) -> _Shares:
    out: _Shares = {}
    for stack, count in seen:
        frames = samples.spelt(stack)
        own = own_frame(frames)
        key = (kind_of(frames), None if own is None else (own.file, own.function))
        out[key] = out.get(key, 0.0) + count / max(looks, 1)
    return out


def _grown(samples: RunSamples, event: FarStep, typical: _Shares) -> _Shares:
    """Nanoseconds that each place takes beyond what it does of a typical step."""
    here = _shares(samples, event.seen, sum(looks for _, looks in event.seen))
    usual = samples.typical_ns or 0
    return {at: share * event.ns - typical.get(at, 0.0) * usual for at, share in here.items()}


def _alone(samples: RunSamples, event: FarStep, grown_ns: float, usual_ratio: float) -> bool:
    """Whether a place that typical steps have, too, is what made the step long, and the rest of it
    took no longer than usual: what makes a whole step slower makes all places longer alike."""
    usual_ns = samples.typical_ns or 0
    here_ns = min(grown_ns + usual_ratio * usual_ns, event.ns)
    if grown_ns < MOSTLY_RATIO * event.excess_ns:
        return False
    if event.ns - here_ns > USUAL_STEP_RATIO * (1 - usual_ratio) * usual_ns:
        return False
    here_ratio = here_ns / event.ns
    # How far looks at a usual step are from looking like this: Kullback and Leibler's distance.
    surprise = sum(
        here * log(here / usual)
        for here, usual in ((here_ratio, usual_ratio), (1 - here_ratio, 1 - usual_ratio))
        if here > 0 and usual > 0
    )
    return usual_ratio < here_ratio and event.looks * surprise >= -log(BY_CHANCE)


def _around(samples: RunSamples, seen: Sequence[tuple[int, int]]) -> PythonFrame | None:
    """The function of the program that most looks at far steps were within, and hardly any at
    typical ones: what usual steps call, too, it calls more often. Of several, the innermost."""
    usual: Counter[tuple[str, str]] = Counter()
    for stack, us in samples.usual:
        usual.update(dict.fromkeys(own_functions(samples.spelt(stack)), us))
    of_usual = max(sum(us for _, us in samples.usual), 1)
    within: Counter[tuple[str, str]] = Counter()
    lines: dict[tuple[str, str], Counter[PythonFrame]] = {}
    depth: dict[tuple[str, str], int] = {}
    for stack, looks in seen:
        for at, (function, frame) in enumerate(own_functions(samples.spelt(stack)).items()):
            if usual[function] < USUAL_RATIO * of_usual:
                within[function] += looks
                lines.setdefault(function, Counter())[frame] += looks
                depth[function] = max(depth.get(function, 0), at)
    most = max(within, key=lambda one: (within[one], -depth[one]), default=None)
    if most is None or within[most] < MOSTLY_RATIO * sum(looks for _, looks in seen):
        return None
    return lines[most].most_common(1)[0][0]


def _inner(
    samples: RunSamples, around: PythonFrame, seen: Sequence[tuple[int, int]]
) -> PythonFrame:
    """The innermost function that nearly all looks within this one are within, too."""
    lines: dict[tuple[str, str], Counter[PythonFrame]] = {}
    depth: Counter[tuple[str, str]] = Counter()
    for stack, looks in seen:
        functions = own_functions(samples.spelt(stack))
        if (around.file, around.function) not in functions:
            continue
        for at, (function, frame) in enumerate(functions.items()):
            lines.setdefault(function, Counter())[frame] += looks
            depth[function] = max(depth[function], at)
    most = lines[around.file, around.function].total()
    nearly = [one for one in lines if lines[one].total() >= NEARLY_RATIO * most]
    return lines[min(nearly, key=depth.__getitem__)].most_common(1)[0][0]


def _place_of_kind(samples: RunSamples, event: FarStep, kind: GapKind) -> RarePlace:
    """The place of most looks at this kind of work; where none fell into it, of most looks."""
    if kind is GapKind.GC and event.gc_called_at:
        return RarePlace(own_frame(event.gc_called_at), COLLECT)
    of_kind = [(s, n) for s, n in event.seen if kind_of(samples.spelt(s)) is kind]
    seen = of_kind or ([] if kind is GapKind.GC else list(event.seen))
    return _most_seen(samples, seen) if of_kind or kind is GapKind.GC else RarePlace(None, None)


def _innermost(
    samples: RunSamples, event: FarStep, kind: GapKind, at: tuple[str, str] | None
) -> RarePlace:
    """The line that most looks at a place saw."""
    seen = []
    for stack, looks in event.seen:
        frames = samples.spelt(stack)
        own = own_frame(frames)
        if kind_of(frames) is kind and (None if own is None else (own.file, own.function)) == at:
            seen.append((stack, looks))
    return _most_seen(samples, seen)


def _most_seen(samples: RunSamples, seen: list[tuple[int, int]]) -> RarePlace:
    looks: Counter[RarePlace] = Counter()
    for stack, count in seen:
        frames = samples.spelt(stack)
        looks[RarePlace(own_frame(frames), called(frames))] += count
    return looks.most_common(1)[0][0] if looks else RarePlace(None, None)
