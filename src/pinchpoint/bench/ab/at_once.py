"""Both runs of a pair at the same time, where others take the machine's CPUs anyway.

One after the other they meet different neighbours: CPU times of two threads of torch differed so by
5 % where the load stood at 8, and by 17 % where it rose from 7 to 14 (2 CPUs). At the same time
they meet the same ones: by 2 % at load 16 to 20, and a pair takes little longer than one of its
runs. What one program does to the other is in both, so that a change that fills caches looks
smaller.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from pinchpoint.bench.metrics import RunMetrics
from pinchpoint.bench.run import Arm
from pinchpoint.bench.run.process import end_running
from pinchpoint.bench.run.waits import disturbed

NOTE = (
    "other programs took the CPUs: A and B of a pair ran at the same time, so that they met the"
    " same neighbours"
)
_MEMORY_SPARE = 1.2  # of the peaks so far: what a program takes differs from run to run
_LEAST_PEAK_BYTES = 256 << 20  # where a program stays below the measuring process, which hides it


def may_be_at_once(
    a: Arm, b: Arm, so_far: Sequence[RunMetrics], *, asked: bool | None = None
) -> bool:
    """Not where they may be in each other's way: by files, as both run in one folder, unless it is
    ``asked`` for; by a device; by memory. What else collides (a port) makes a run fail."""
    apart = a.cwd != b.cwd if asked is None else asked
    return apart and could_be_at_once(so_far)


def could_be_at_once(so_far: Sequence[RunMetrics]) -> bool:
    """Where others take the CPUs, no device times the steps, and memory is enough for two."""
    on_host = all(r.gpu is None and (not r.steps or r.steps.clock == "host") for r in so_far)
    return on_host and disturbed(so_far) and _fits(so_far)


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


def _fits(so_far: Sequence[RunMetrics]) -> bool:
    import psutil

    peaks = [(r.memory.host_peak_rss_bytes if r.memory else None) or 0 for r in so_far]
    wanted = 2 * max(*peaks, _LEAST_PEAK_BYTES) * _MEMORY_SPARE
    return bool(psutil.virtual_memory().available > wanted)
