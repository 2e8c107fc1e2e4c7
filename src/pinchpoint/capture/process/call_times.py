"""Of the calls of compiled functions, what the run folder keeps: steps may be told by them.

For each place how often it was called in the recording and in which intervals, which shows whether
its calls are the steps found there; and the intervals around the recording, which are then steps
without the profiler. The first calls compile, and after the program was held up it runs ahead of
its device again until a queue is full, in which calls say nothing of its pace.
"""

import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from pinchpoint.capture.process.compiled_calls import CompiledCalls, Key
from pinchpoint.capture.process.step_clock import FIRST_STEPS, median
from pinchpoint.capture.windows.recording import Recording

FEWEST_CALLS = 3  # in the recording: two intervals
MOST_PLACES = 8  # that differ in how often they were called: those called least often
TIMED_CALLS = 200  # on each side of the recording: a program that waits for its device every 20
# steps (to log, say) does so ten times
TIMED_NS = 30_000_000_000  # long enough for a figure when steps are slow
STEADY_NS = 5_000_000_000  # before the recording, which began so long after compiling ended
FEWEST_TIMED = 20  # before the recording, however long they take
QUEUE_CALLS = 40  # XLA lets 32 computations wait for a device
MOST_QUEUE_RATIO = 0.25  # of what is left to be timed


def calls_note(calls: CompiledCalls, recordings: Sequence[Recording]) -> list[dict[str, Any]]:
    """By place, those called least often first; empty without a recording."""
    kept = next((r for r in recordings if r.file and r.window in ("times", "early")), None)
    if kept is None or not calls.times_ns:
        return []
    to_unix_ns = time.time_ns() - time.perf_counter_ns()
    window = kept.start_unix_ns - to_unix_ns, kept.end_unix_ns - to_unix_ns
    by_count: dict[int, Key] = {}
    for key, times_ns in tuple(calls.times_ns.items()):
        inside = bisect_right(times_ns, window[1]) - bisect_left(times_ns, window[0])
        if inside >= FEWEST_CALLS and not _longer(calls, by_count.get(inside), key):
            by_count[inside] = key
    least_often = sorted(by_count)[:MOST_PLACES]
    return [_note(calls, by_count[inside], window) for inside in least_often]


def _longer(calls: CompiledCalls, known: Key | None, key: Key) -> bool:
    """Whether one that is called as often has more times."""
    return known is not None and len(calls.times_ns[known]) >= len(calls.times_ns[key])


def _note(calls: CompiledCalls, key: Key, window: tuple[int, int]) -> dict[str, Any]:
    place, times_ns = calls.places[key], calls.times_ns[key][:]
    first, end = bisect_left(times_ns, window[0]), bisect_right(times_ns, window[1])
    inside = array("q", (b - a for a, b in pairwise(times_ns[first:end])))
    before, after = _around(times_ns, calls.busy_ns, window)
    return {
        "place": [place.code.co_filename, place.line, place.code.co_qualname],
        "called": place.function,
        "inside": end - first,
        "inside_mean_ns": sum(inside) // len(inside),
        "inside_median_ns": median(inside),
        "steps": {
            "count": len(times_ns),
            "before_ns": before,
            "after_ns": after,
            "run": _summary(times_ns, calls.busy_ns),
        },
    }


def _around(
    times_ns: "array[int]", busy_ns: Sequence[tuple[int, int]], window: tuple[int, int]
) -> tuple[list[int], list[int]]:
    """Intervals before the recording and after it."""
    before: list[int] = []
    after: list[int] = []
    for first, end in _undisturbed(times_ns, busy_ns):
        lead = min(QUEUE_CALLS, int(MOST_QUEUE_RATIO * (end - first)))
        first = max(first + lead, FIRST_STEPS)
        if first >= end:
            continue
        if times_ns[end] <= window[0]:
            least = bisect_left(times_ns, times_ns[end] - STEADY_NS)
            least = max(min(least, end - FEWEST_TIMED), end - TIMED_CALLS, first)
            if end - least >= min(len(before), FEWEST_TIMED):  # not what lies between two windows
                before = [times_ns[i + 1] - times_ns[i] for i in range(least, end)]
        elif times_ns[first] >= window[1] and len(after) < TIMED_CALLS and sum(after) < TIMED_NS:
            most = bisect_right(times_ns, times_ns[first] + TIMED_NS - sum(after))
            most = min(max(most, first + 1), first + TIMED_CALLS - len(after), end)
            after += [times_ns[i + 1] - times_ns[i] for i in range(first, most)]
    return before, after


def _undisturbed(
    times_ns: "array[int]", busy_ns: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """First and end position of the intervals that nothing of Pinchpoint touched, in a row."""
    at = 0
    for began_ns, ended_ns in sorted(busy_ns):
        end = max(bisect_left(times_ns, began_ns) - 1, at)  # the interval in which it began
        if end > at:
            yield at, end
        at = max(bisect_left(times_ns, ended_ns), at)
    if len(times_ns) - 1 > at:
        yield at, len(times_ns) - 1


def _summary(times_ns: "array[int]", busy_ns: Sequence[tuple[int, int]]) -> dict[str, int | None]:
    rows = (i for first, end in _undisturbed(times_ns, busy_ns) for i in range(first, end))
    took_ns = sorted(times_ns[i + 1] - times_ns[i] for i in rows if i >= FIRST_STEPS)
    if not took_ns:
        return {"count": 0}
    shares = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
    found: dict[str, int | None] = {
        name: took_ns[min(int(q * len(took_ns)), len(took_ns) - 1)] for name, q in shares.items()
    }
    return found | {
        "count": len(took_ns),
        "total_ns": sum(took_ns),
        "least": took_ns[0],
        "most": took_ns[-1],
    }
