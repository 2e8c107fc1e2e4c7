"""What a run with steps does outside of them: before the third, and after the last."""

from pinchpoint.analysis.host.frames import is_recorder
from pinchpoint.analysis.mean.rare_steps import kind_of
from pinchpoint.analysis.mean.ways import imports
from pinchpoint.analysis.mean.whole_run import Cores, RunPlace, places_of
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
    return Phase(
        id_,
        ns,
        round(ns * of_imports / seen_us),
        places_of(works, cores, _scaled(ns, works, seen_us)),
    )


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
