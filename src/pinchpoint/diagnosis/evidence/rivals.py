"""Threads that compete for the interpreter's lock, by the samples of the whole run."""

from collections.abc import Iterable

from pinchpoint.analysis.host.frames import Owner, frame_of
from pinchpoint.analysis.mean.rare_steps import own_frame
from pinchpoint.analysis.time.stalls import SWITCH_INTERVAL_NS
from pinchpoint.diagnosis.finding import Evidence, Location
from pinchpoint.frozen import dataclass
from pinchpoint.trace import RunSamples, Trace
from pinchpoint.trace.run_samples import SampledThread

FEWEST_LOOKS = 20  # half a second of looks; of fewer a share says little
# A thread that waits is inside Python's own library, or a framework's.
OWN_RATIO = 0.5
# Two threads that both want the lock get half a core each; a third leaves room for a third thread.
# Where cores are scarce, as much as the main thread got.
CORE_RATIO = 0.3
# The looking thread asks for the lock like any other, and gets it within one switch interval from a
# thread that runs Python; at once from one that has released it.
LATE_NS = SWITCH_INTERVAL_NS // 16  # its turns may be short; waking up alone takes 0.1 ms


@dataclass(frozen=True)
class Rival:
    """A thread beside the main one, in words and figures."""

    said: str
    evidence: tuple[Evidence, ...]
    location: Location | None  # in the program; None where it is in a library
    unpickles: bool  # it takes batches apart that worker processes sent


def sampled_rivals(trace: Trace) -> tuple[Rival, ...]:
    """Threads that run Python all the time, busiest first; none where the run was not sampled."""
    samples = trace.run.samples if trace.run else None
    if samples is None or (samples.late_median_ns or 0) < LATE_NS:
        return ()
    busy = [t for t in samples.threads if not t.main and _runs_python(samples, t)]
    return tuple(_rival(samples, t) for t in sorted(busy, key=lambda t: -(t.cpu_ns or 0)))


def _runs_python(samples: RunSamples, thread: SampledThread) -> bool:
    """Whether it is mostly in code of the program or a library, and on a core."""
    own = sum(looks for stack, looks in thread.stacks if _innermost_is_own(samples, stack))
    runs = thread.looks >= FEWEST_LOOKS and own >= OWN_RATIO * thread.looks
    main = next((t.cpu_ns for t in samples.threads if t.main), None)
    enough = CORE_RATIO * 1e9 * samples.seconds
    return runs and (thread.cpu_ns or 0) >= min(enough, enough if main is None else main)


def _innermost_is_own(samples: RunSamples, stack: int) -> bool:
    """In the program or a library; or where a framework takes a batch apart, object by object."""
    spelt = samples.spelt(stack)
    frame = next((f for name in spelt[:1] if (f := frame_of(name))), None)
    if frame is None or frame.owner is not Owner.FRAMEWORK:
        return frame is not None
    return frame.function not in _RELEASES and _takes_apart(spelt)


# A loader's thread in the main process rebuilds each tensor that a worker sent, in Python; copying
# into pinned memory gives the lock up.
_QUEUES, _PUTS_IN = "multiprocessing/queues.py", "_feed"
_RELEASES = ("pin_memory", "wait", "select", "_recv")


def _takes_apart(spelt: Iterable[str]) -> bool:
    """Whether something comes out of a queue; what goes in is written by another thread of it."""
    return any(_QUEUES in name and not name.endswith(_PUTS_IN) for name in spelt)


def _rival(samples: RunSamples, thread: SampledThread) -> Rival:
    at = next((f for s, _ in thread.stacks if (f := own_frame(samples.spelt(s)))), None)
    where = f" in {at.function} ({at.file}:{at.line})" if at else ""
    unpickles = any(_takes_apart(samples.spelt(s)) for s, _ in thread.stacks)
    return Rival(
        f"thread {thread.name}{where}",
        (
            Evidence("that thread on a core", round((thread.cpu_ns or 0) / 1e9, 1), "s"),
            Evidence("of the seconds looked at", round(samples.seconds, 1), "s"),
            Evidence("a look waited for the lock", samples.late_median_ns or 0, "ns"),
        ),
        Location(at.file, at.line, at.function) if at else None,
        unpickles and at is None,
    )
