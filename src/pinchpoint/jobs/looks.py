"""What each rank did by itself, by looks at it over the whole run.

Where other programs take the cores of a job, or its ranks take each other's, the recorded times of
its ranks say who got a core, not who is late by itself. How long a thread was on a core, or slept
of its own will, that changes little; how long it was ready and had none is known as well.
"""

from collections import Counter
from pathlib import Path

from pinchpoint.analysis.mean.stacks import own_frame
from pinchpoint.analysis.mean.ways import Way, asleep_us, wait_of
from pinchpoint.analysis.mean.whole_run import NS_PER_US, wilson
from pinchpoint.analysis.ranks.summary import RankPlace
from pinchpoint.frozen import dataclass
from pinchpoint.importers.run_folder.samples import samples_of
from pinchpoint.trace.run_samples import Spent

MOST_PLACES = 8  # of one rank, most time first; a summary is to stay small
# A thread that waits for a collective sleeps in a lock or a socket, which is no time of its own.
_OF_ITS_OWN = (Way.SLEEP, Way.FILES)


@dataclass(frozen=True)
class Looks:
    """What looks at the main thread of a rank say. Ratios are of the time looked at."""

    places: tuple[RankPlace, ...] = ()  # time in a mean step by function of the program
    own_ratio: float | None = None
    no_core_ratio: float | None = None


def looks_at(recording: str, step_ns: float | None = None) -> Looks:
    """Those at the rank of this file of a run folder's traces; nothing where there were none.

    ``step_ns``: its mean step, of which places have their share; else what was looked at, by the
    steps that were counted.
    """
    samples = samples_of(Path(recording))
    main = None if samples is None else next((t for t in samples.threads if t.main), None)
    if samples is None or main is None or not main.spent or not samples.count:
        return Looks()
    placed_us = max(sum(one.us for one in main.spent), 1)
    own = sum(map(_own_us, main.spent)) / placed_us
    queued = main.queued_ns
    whole_ns = NS_PER_US * (placed_us + main.unplaced_us)
    no_core = None if queued is None else min(queued / whole_ns, 1.0)
    mean_ns = step_ns or NS_PER_US * placed_us / samples.count
    return Looks(_places(main.spent, mean_ns), own, no_core)


def _own_us(one: Spent) -> int:
    """Of the time at a stack: on a core, or asleep of the thread's own will."""
    asleep = asleep_us(one)
    return min(one.on_core_us, one.us - asleep) + (asleep if wait_of(one) in _OF_ITS_OWN else 0)


def _there_us(one: Spent) -> int:
    """With the time in which it was ready and had no core."""
    return one.us if wait_of(one) in _OF_ITS_OWN else one.us - asleep_us(one)


def _places(spent: tuple[Spent, ...], step_ns: float) -> tuple[RankPlace, ...]:
    whole_us = max(sum(one.us for one in spent), 1)
    looks = sum(one.looks for one in spent)
    own: Counter[tuple[str, str]] = Counter()
    there: Counter[tuple[str, str]] = Counter()
    lines: dict[tuple[str, str], Counter[tuple[int | None, str]]] = {}
    for one in spent:
        frame = own_frame(one.frames)
        if frame is None:
            continue
        key = (frame.file, frame.function)
        own[key] += _own_us(one)
        there[key] += _there_us(one)
        lines.setdefault(key, Counter())[frame.line, one.doing] += one.us
    found = []
    for key, us in own.most_common(MOST_PLACES):
        low, high = wilson(us / whole_us, looks)
        line, doing = lines[key].most_common(1)[0][0]
        found.append(
            RankPlace(
                file=key[0],
                function=key[1],
                line=line,
                doing=doing,
                least_ns=round(low * step_ns),
                ns=round(us / whole_us * step_ns),
                most_ns=round(high * step_ns),
                none_ns=round(wilson(0.0, looks)[1] * step_ns),
                there_ns=round(there[key] / whole_us * step_ns),
                least_there_ns=round(wilson(there[key] / whole_us, looks)[0] * step_ns),
            )
        )
    return tuple(found)
