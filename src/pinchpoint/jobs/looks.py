"""What each rank did by itself, by looks at it over the whole run.

Where other programs take the cores of a job, the recorded times of its ranks say who got a core,
not who is late by itself. How long a thread was on a core, or slept of its own will, they change
little.
"""

from collections import Counter
from pathlib import Path

from pinchpoint.analysis.mean.rare_steps import own_frame
from pinchpoint.analysis.mean.ways import Way, asleep_us, wait_of
from pinchpoint.analysis.mean.whole_run import NS_PER_US, wilson
from pinchpoint.analysis.ranks.summary import RankPlace
from pinchpoint.importers.run_folder.samples import samples_of
from pinchpoint.trace.run_samples import RunSamples, Spent

MOST_PLACES = 8  # of one rank, most time first; a summary is to stay small
# A thread that waits for a collective sleeps in a lock or a socket, which is no time of its own.
_OF_ITS_OWN = (Way.SLEEP, Way.FILES)


def own_places(recording: str) -> tuple[RankPlace, ...]:
    """The program's functions with the time that the rank of this file of a run folder's traces
    spent there by itself, in a mean step; empty where it was not looked at."""
    samples = samples_of(Path(recording))
    main = None if samples is None else next((t for t in samples.threads if t.main), None)
    if samples is None or main is None or not main.spent or not samples.count:
        return ()
    return _places(samples, main.spent)


def _places(samples: RunSamples, spent: tuple[Spent, ...]) -> tuple[RankPlace, ...]:
    whole_us = max(sum(one.us for one in spent), 1)
    looks = sum(one.looks for one in spent)
    own: Counter[tuple[str, str]] = Counter()
    lines: dict[tuple[str, str], Counter[tuple[int | None, str]]] = {}
    for one in spent:
        frame = own_frame(one.frames)
        if frame is None:
            continue
        key = (frame.file, frame.function)
        asleep = asleep_us(one)
        own[key] += min(one.on_core_us, one.us - asleep)
        own[key] += asleep if wait_of(one) in _OF_ITS_OWN else 0
        lines.setdefault(key, Counter())[frame.line, one.doing] += one.us
    step_ns = NS_PER_US * whole_us / samples.count
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
            )
        )
    return tuple(found)
