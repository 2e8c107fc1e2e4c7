"""What a run with steps does outside of them: before the third, and after the last."""

from collections import Counter
from dataclasses import replace

from pinchpoint.analysis.host.frames import NAMELESS, Owner, frame_of, is_recorder
from pinchpoint.analysis.mean.stacks import kind_of
from pinchpoint.analysis.mean.ways import imports, is_own
from pinchpoint.analysis.mean.whole_run import Cores, RunPlace, places_of
from pinchpoint.analysis.replay.predict import corrected_step_ns
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.frozen import dataclass
from pinchpoint.trace import RunSamples, Trace, once_per_trace
from pinchpoint.trace.run_samples import Spent


@dataclass(frozen=True)
class Phase:
    """A part of the run that no step shows."""

    id: str  # before, after
    ns: int
    imports_ns: int  # of it
    places: tuple[RunPlace, ...]  # most time first; their shares are of the phase
    works: tuple[Spent, ...] = ()  # what they were made of
    cores: Cores = Cores(0)
    works_ns: int = 0  # of the phase


@once_per_trace
def phases(trace: Trace) -> tuple[Phase, ...]:
    """Empty where the steps of the run were not told from each other."""
    samples, course = (trace.run.samples, trace.run.course) if trace.run else (None, None)
    if samples is None or not samples.count:
        return ()
    before_ns = course.before_ns if course else None
    found = []
    if before_ns and samples.before is not None:
        cores = Cores.of(samples, [samples.before])
        found.append(_phase("before", before_ns, samples.before.spent, cores))
    if samples.after_ns and samples.after:
        found.append(_phase("after", samples.after_ns, _after(samples), Cores(0)))
    return tuple(found)


def _phase(id_: str, ns: int, spent: tuple[Spent, ...], cores: Cores) -> Phase:
    seen_us = max(sum(one.us for one in spent), 1)
    of_imports = sum(one.us for one in spent if imports(one.frames))
    works = tuple(one for one in spent if not _told_elsewhere(one))
    works_ns = _scaled(ns, works, seen_us)
    places = places_of(works, cores, works_ns)
    imports_ns = round(ns * of_imports / seen_us)
    return Phase(id_, ns, imports_ns, places, works, cores, works_ns)


def around(trace: Trace, phase: Phase, least_ns: float) -> RunPlace | None:
    """The innermost function of the program that surely takes so long with all that it calls;
    None without one. The code of modules calls everything, and so does what calls the steps."""
    everywhere = _calls_the_steps(trace)
    us: Counter[tuple[str, str]] = Counter()
    for one in phase.works:
        if not imports(one.frames):
            for key in {key for name in one.frames if (key := _own(name)) is not None}:
                us[key] += one.us
    for key, _ in sorted(us.items(), key=lambda item: item[1]):
        if key in everywhere or key[1] == "<module>":
            continue
        inside = tuple(_seen_from(one, key) for one in phase.works)
        for place in places_of(inside, phase.cores, phase.works_ns):
            is_it = place.at is not None and (place.at.file, place.at.function) == key
            if is_it and place.share.range_ns[0] >= least_ns:
                return place
    return None


COLD_STEPS = 2  # begin before the third one


def cold_steps_ns(trace: Trace, phase: Phase, place: RunPlace) -> int:
    """What steps as long as the others take of the phase before the third, at a place that is
    theirs; 0 at any other place."""
    if phase.id != "before" or place.at is None:
        return 0
    at = place.at.file, place.at.function, place.at.line
    theirs = {
        (one.file, one.function, one.line)
        for name in _frames_of_steps(trace)
        if (one := frame_of(name)) is not None
    }
    mine = {one[:2] for one in theirs if one[1] not in (*NAMELESS, "<module>")}
    if at not in theirs and at[:2] not in mine:
        return 0
    return COLD_STEPS * (corrected_step_ns(trace) or steps(trace).typical_ns or 0)


def _calls_the_steps(trace: Trace) -> set[tuple[str, str]]:
    """The program's functions that were running while steps were."""
    return {key for name in _frames_of_steps(trace) if (key := _own(name)) is not None}


def _frames_of_steps(trace: Trace) -> set[str]:
    samples = trace.run.samples if trace.run else None
    threads = () if samples is None else samples.threads
    return {name for thread in threads for one in thread.spent for name in one.frames}


def _own(name: str) -> tuple[str, str] | None:
    frame = frame_of(name)
    own = frame is not None and frame.owner is Owner.USER and frame.function not in NAMELESS
    return (frame.file, frame.function) if frame is not None and own else None


def _seen_from(one: Spent, key: tuple[str, str]) -> Spent:
    """A stack without what one of its functions has called of the program's own code."""
    at = next((i for i, name in enumerate(one.frames) if _own(name) == key), None)
    if at is None or imports(one.frames):
        return one
    first = max((i + 1 for i in range(at) if is_own(one.frames[i : i + 1])), default=0)
    return one if first == 0 else replace(one, frames=one.frames[first:], doing="")


def _scaled(ns: int, works: tuple[Spent, ...], seen_us: int) -> int:
    """What of a phase these are."""
    return round(ns * sum(one.us for one in works) / seen_us)


def _told_elsewhere(one: Spent) -> bool:
    """Recording itself, and compilation, which has a cause of its own."""
    ours = any(map(is_recorder, one.frames))
    return ours or kind_of(one.frames) is GapKind.COMPILE


def _after(samples: RunSamples) -> tuple[Spent, ...]:
    every_us = max(round(1e6 * samples.every_s), 1)
    return tuple(
        Spent(samples.spelt(stack), "", max(us // every_us, 1), us, 0, 0)
        for stack, us in samples.after
    )
