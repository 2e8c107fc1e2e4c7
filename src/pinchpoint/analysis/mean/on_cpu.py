"""What the step of a program without a device would be after a change.

One thread calls one operator after another and waits for each, so that a change takes away what
it takes away of the time of that thread: the accounting is the replay.
"""

from collections.abc import Iterable

import numpy as np

from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.limits.on_cpu import Waits, held_up
from pinchpoint.analysis.replay.predict import comes_in_bursts, corrected_step_ns
from pinchpoint.analysis.replay.prediction import Prediction
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.steps.timed import timed_by_run
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace import intervals as iv
from pinchpoint.trace.arrays import Ints

# Of the time taken away, either way: an operator of another type or size on the same CPU was up to
# so far from what its bytes and FLOPs say (docs/accuracy.md, programs on CPUs).
UNCERTAIN_RATIO = 0.3
# With a cause go caches, allocations and waits for cores that it had a part in, unseen. Of 28
# programs whose cause was named rightly, the fix won 1.14 times what was said in the middle, and at
# most 1.4 times in nine of ten; what stayed was 0.6 of what was said or more. Of 22 others it won
# 1.13 times as much, and what stayed was 0.83 of what was said in the middle
# (docs/unseen-programs.md, what fixes on CPUs win beyond that).
USUALLY_BEYOND_RATIO = 0.14
USUALLY_QUICKER_RATIO = 0.14  # so much shorter is the rest in the middle, at most
# Of stretches of time, taken away: then the work goes. What is done otherwise needs caches, too.
GOES_RATIO = 0.95
MOST_BEYOND_RATIO = 0.4  # nine of ten, as above
QUICKER_REST_RATIO = 0.4  # nine of ten, as above


def what_if_on_cpu(
    trace: Trace, touched: Iterable[tuple[float, iv.Intervals]]
) -> Prediction | None:
    """The typical step less the shares of stretches of time; None with a device or without steps.

    A moment that several changes take is taken once, by the one that takes most of it.
    """
    base, found = steps(trace).typical_ns, steps(trace)
    if base is None or not computes_on_cpu(trace):
        return None
    start, end = found.start_ns[found.typical], found.end_ns[found.typical]
    count = max(int(found.typical.sum()), 1)
    taken = fair_taken = reached = 0.0
    covered, waits = iv.NONE, held_up(trace)
    for ratio, stretches in sorted(touched, key=lambda one: -one[0]):
        new = iv.subtract(stretches, covered)
        covered = iv.union(covered, new)
        taken += ratio * _inside(new, start, end)
        reached += _inside(new, start, end) if ratio > 0 else 0.0
        fair_taken += ratio * _inside(new, start, end, waits)
    saving = min(taken / count, float(base))
    bound = max(base - _inside(covered, start, end) / count, 0.0)  # what no change touches
    # Without waits for cores, each part of the step has another share of it.
    fair = base / max(_inside(iv.flatten(start, end), start, end, waits) / count, 1.0)
    fair_saving = min(fair * fair_taken / count, float(base))
    fair_bound = max(base - fair * _inside(covered, start, end, waits) / count, 0.0)
    least, most = sorted((saving, fair_saving))
    high = round(base - (1 - UNCERTAIN_RATIO) * least)
    rest = (1 - QUICKER_REST_RATIO) * min(bound, fair_bound)
    low = round(max(base - (1 + MOST_BEYOND_RATIO) * most, rest))
    # What stays is no shorter than it was in the quickest of the recorded steps.
    whole = found.complete | found.typical
    least_rest = _least_rest(covered, found.start_ns[whole], found.end_ns[whole])
    quicker = max(bound - least_rest, 0.0)
    if taken >= GOES_RATIO * max(reached, 1.0):
        quicker = max(quicker, USUALLY_QUICKER_RATIO * (base - saving))
    middle = round(max(base - saving - min(USUALLY_BEYOND_RATIO * saving, quicker), 0.0))
    return Prediction(
        middle,
        (min(low, middle), max(min(high, base), middle)),
        base,
        middle,
        min(round(bound), low),
        of_host=True,
    )


def usually_ns(base_ns: int, saving_ns: int) -> int:
    """The step without so much of it, and what usually goes with that."""
    rest_ns = (1 - USUALLY_QUICKER_RATIO) * (base_ns - saving_ns)
    return round(max(base_ns - (1 + USUALLY_BEYOND_RATIO) * saving_ns, rest_ns, 0.0))


@once_per_trace
def fair_step_ratio(trace: Trace) -> float:
    """Of the typical step, what it would be without the waits of operators for their cores."""
    found, waits = steps(trace), held_up(trace)
    start, end = found.start_ns[found.typical], found.end_ns[found.typical]
    whole = _inside(iv.flatten(start, end), start, end)
    return _inside(iv.flatten(start, end), start, end, waits) / whole if whole else 1.0


def slower_outside(trace: Trace) -> float:
    """How many times as long the run's steps took as those recorded of it, on a machine whose cores
    other programs had: recording makes steps longer, so nothing else makes them shorter. At least
    1, and 1 where steps come in bursts, of which none may have been recorded."""
    timed, recorded = corrected_step_ns(trace), steps(trace).typical_ns
    disturbed = trace.run is not None and trace.run.disturbed and timed_by_run(trace)
    if not (disturbed and timed and recorded and computes_on_cpu(trace)) or comes_in_bursts(trace):
        return 1.0
    return max(timed / recorded, 1.0)


def _least_rest(covered: iv.Intervals, start: Ints, end: Ints) -> float:
    """The least of a step that is outside of these stretches."""
    rests = end - start - (iv.covered_before(covered, end) - iv.covered_before(covered, start))
    return float(rests.min(initial=np.iinfo(np.int64).max))


def _inside(covered: iv.Intervals, start: Ints, end: Ints, waits: Waits | None = None) -> float:
    """Of steps, the time in these stretches; without what operators waited for cores in it."""
    inside = iv.covered_before(covered, end) - iv.covered_before(covered, start)
    if waits is None:
        return float(inside.sum())
    mine = iv.intersect(covered, iv.flatten(start, end))
    return float(inside.sum()) - waits.within(mine.start, mine.end)
