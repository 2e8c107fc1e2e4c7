"""Runs of which nothing was recorded but looks at their threads, by hand."""

from collections.abc import Sequence

from pinchpoint.run_folder.samples import UsageNote
from pinchpoint.trace import RunCourse, RunFacts, RunSamples, Source, Trace
from pinchpoint.trace.run_samples import Garbage, SampledChild, SampledThread, Spent

SECOND_US = 1_000_000
SECOND_NS = 1_000_000_000
MAIN = "work.py(90): <module>"
IMPORTING = ("pandas/core/api.py(3): <module>", "<frozen importlib._bootstrap>(9): _find_and_load")
SLEEPS = ("S hrtimer_nanosleep",)


def spent(
    frames: Sequence[str],
    seconds: float = 1.0,
    *,
    doing: str = "",
    on_core: float = 1.0,
    held: float = 0.0,
    word: str | None = None,
    looks: int | None = None,
) -> Spent:
    """Seconds of a thread at a stack, below the program's module: shares of it on a core and with
    the lock held; ``word`` is what the kernel says it waits in all the time."""
    us = round(seconds * SECOND_US)
    return Spent(
        (*frames, MAIN),
        doing,
        round(50 * seconds) if looks is None else looks,
        us,
        round(us * on_core),
        round(us * held),
        () if word is None else ((word, us),),
    )


def computing(line: int, function: str, seconds: float, doing: str = "") -> Spent:
    """In Python, or a call that keeps its lock."""
    return spent((f"work.py({line}): {function}",), seconds, doing=doing, held=1.0)


def in_numpy(line: int, function: str, seconds: float, called: str = "eigh") -> Spent:
    """In a library that gives the lock up."""
    frames = (f"numpy/linalg/linalg.py(9): {called}", f"work.py({line}): {function}")
    return spent(frames, seconds, doing="gufunc()")


def waiting(line: int, function: str, seconds: float, word: str, doing: str = "") -> Spent:
    """On no core, where the kernel says."""
    return spent((f"work.py({line}): {function}",), seconds, doing=doing, on_core=0.0, word=word)


def thread(*seen: Spent, main: bool = True, name: str = "MainThread", queued: float = 0.0):
    """A thread with all that was seen of it."""
    on_core_us = sum(one.on_core_us for one in seen)
    return SampledThread(
        name,
        main,
        sum(one.looks for one in seen),
        1000 * on_core_us,
        (),
        tuple(seen),
        0,
        round(queued * SECOND_NS),
    )


def child(*seen: Spent, queued: float = 0.0, seconds: float | None = None) -> SampledChild:
    """A process that multiprocessing started."""
    lived = sum(one.us for one in seen) / SECOND_US if seconds is None else seconds
    on_core_ns = 1000 * sum(one.on_core_us for one in seen)
    usage = UsageNote(user_ns=on_core_ns, kernel_ns=0, threads=4)
    return SampledChild(7, lived, thread(*seen, queued=queued), usage)


def looked_at(
    *threads: SampledThread,
    children: Sequence[SampledChild] = (),
    garbage: Garbage | None = None,
    cores: float = 2.0,
    total_s: float | None = None,
    **usage: int,
) -> Trace:
    """A run of these threads, the first of which is the main one."""
    seen_us = sum(one.us for one in threads[0].spent)
    on_core_ns = 1000 * sum(one.on_core_us for t in threads for one in t.spent)
    counted = {"user_ns": on_core_ns, "kernel_ns": 0, "threads": 2, "python_threads": 1} | usage
    samples = RunSamples(
        every_s=0.02,
        seconds=seen_us / SECOND_US,
        looks=sum(one.looks for one in threads[0].spent),
        late_median_ns=0,
        cost_ns=0,
        frames=(),
        stacks=(),
        threads=threads,
        usage=UsageNote(**counted),
        garbage=garbage,
        children=tuple(children),
    )
    total_ns = 1000 * seen_us if total_s is None else round(total_s * SECOND_NS)
    run = RunFacts(samples=samples, course=RunCourse(total_ns), cores_allowed=cores)
    return Trace(Source("run", "run folder (samples)"), (), run=run)


def samples_of(*threads: SampledThread, usage: UsageNote | None = None) -> RunSamples:
    """Looks at these threads, beside a recording."""
    return RunSamples(0.02, 9.0, 99, 0, 0, (), (), threads, usage=usage)
