"""Both runs of a pair at the same time.

One after the other they meet different neighbours, and another speed of the CPUs: CPU times of two
threads of torch differed so by 5 % where the load stood at 8, and by 17 % where it rose from 7 to
14 (2 CPUs). At the same time they meet the same ones, best on halves of the CPUs that are exchanged
(``bench.run.swapped``), for programs that compute. What one program does to the other is in both,
so that a change that fills caches looks smaller.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum

from pinchpoint.bench.metrics import RunMetrics
from pinchpoint.bench.run import Arm
from pinchpoint.bench.run.process import end_running
from pinchpoint.bench.run.swapped import halves
from pinchpoint.bench.run.waits import disturbed, may_sleep

NOTE = (
    "other programs used the CPUs, so that A and B of a pair ran at the same time: both met the"
    " same ones"
)
SWAPPED_NOTE = (
    "A and B of a pair ran at the same time, each on half of the CPUs, and changed places every"
    " 50 ms: both met the same other programs and the same speed of the CPUs; what a program gains"
    " from more CPUs does not show so"
)
_MEMORY_SPARE = 1.2  # of the peaks so far: what a program takes differs from run to run
_LEAST_PEAK_BYTES = 256 << 20  # where a program stays below the measuring process, which hides it
# Of the time that a program has without waiting for a CPU: what waits for something else has no use
# for half of the CPUs.
_COMPUTES_RATIO = 0.8
# Between A and B, of CPU time over the time of the busiest thread. On half of the CPUs nobody sees
# that a change works with fewer threads. That of one program of two threads differed by 8 %.
_AS_PARALLEL = 0.15
# Of the median step, within a run and from one run to the next: steps of a machine whose CPUs keep
# their speed differ by less, and where A and B differ by more the surest pairs are wanted.
_WANDERS_WITHIN, _WANDERS_BETWEEN = 0.03, 0.05


class Manner(Enum):
    """How the runs of a pair go."""

    APART = "one after the other"
    AT_ONCE = "at once"
    SWAPPED = "at once, on halves of the CPUs"


def manner(a: Arm, b: Arm, so_far: Sequence[RunMetrics], *, asked: bool | None = None) -> Manner:
    """Apart where they may be in each other's way: by files, as both run in one folder, unless
    more is ``asked`` for; by a device; by memory. What else collides (a port) makes a run fail.
    Apart, too, where runs are alike by themselves, unless it is asked for."""
    together = a.cwd != b.cwd if asked is None else asked
    if not together or why_apart(so_far):
        return Manner.APART
    busy = disturbed(so_far)
    if _may_swap(so_far) and may_sleep(os.environ, a.env, b.env):
        return Manner.SWAPPED if busy or asked or _wanders(so_far) else Manner.APART
    return Manner.AT_ONCE if busy or asked else Manner.APART


def why_apart(so_far: Sequence[RunMetrics]) -> str | None:
    """What is in the way of two runs at the same time; None if nothing is."""
    if any(r.gpu is not None or (r.steps and r.steps.clock != "host") for r in so_far):
        return "both would take the device from each other"
    return None if _fits(so_far) else "there is not enough memory for both"


def both_at_once(
    first: Callable[[], RunMetrics], second: Callable[[], RunMetrics]
) -> tuple[RunMetrics, RunMetrics]:
    """What both measure; where this process is interrupted both programs are ended."""
    with ThreadPoolExecutor(1) as beside:
        begun = beside.submit(first)
        try:
            here = second()
            return begun.result(), here
        except BaseException:
            end_running()
            raise


def _may_swap(so_far: Sequence[RunMetrics]) -> bool:
    """Whether the runs of both say that all of them compute, in steps, and as parallel."""
    alone = [run for run in so_far if not run.at_once]
    steps = [run.steps for run in alone if run.steps and run.steps.own_ms and run.steps.cpu_ms]
    if halves() is None or not steps or len(steps) < len(alone):
        return False
    parallel = [(s.cpu_ms or 0.0) / (s.own_ms or 1.0) for s in steps]
    most, least = max(parallel), min(parallel)
    return least >= _COMPUTES_RATIO and most <= least * (1 + _AS_PARALLEL)


def _wanders(so_far: Sequence[RunMetrics]) -> bool:
    """Whether steps get slower and faster, within a run or from one to the next."""
    known = [r.steps.step_time_ms for r in so_far if r.steps and not r.at_once]
    steps = [(s.median, s.mad or 0.0) for s in known if s.median]
    if not steps:
        return False
    medians = [median for median, _ in steps]
    between = max(medians) / min(medians) - 1
    return between > _WANDERS_BETWEEN or any(mad > _WANDERS_WITHIN * m for m, mad in steps)


def _fits(so_far: Sequence[RunMetrics]) -> bool:
    import psutil

    peaks = [(r.memory.host_peak_rss_bytes if r.memory else None) or 0 for r in so_far]
    wanted = 2 * max(*peaks, _LEAST_PEAK_BYTES) * _MEMORY_SPARE
    return bool(psutil.virtual_memory().available > wanted)
