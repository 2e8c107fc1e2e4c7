"""Threads that compete for the interpreter's lock, by the samples of the whole run."""

from collections import Counter
from collections.abc import Iterable

from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.host.frames import Owner, PythonFrame, frame_of, in_standard_library
from pinchpoint.analysis.mean.stacks import own_frame
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.analysis.time.stalls import SWITCH_INTERVAL_NS
from pinchpoint.analysis.work.pointwise_chains import launched_calls
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
    polls: bool  # it asks again and again for what is not there yet


def sampled_rivals(trace: Trace) -> tuple[Rival, ...]:
    """Threads that run Python all the time, busiest first; none where the run was not sampled.

    Looks wait for one that keeps the lock. One that takes batches of many tensors apart gives it up
    and wants it back several times for each tensor, between which looks find it free.
    """
    samples = trace.run.samples if trace.run else None
    if samples is None:
        return ()
    late = late_by_the_lock_ns(samples) >= LATE_NS
    competes = _runs_python if late else _rebuilds_tensors
    busy = [t for t in samples.threads if not t.main and competes(samples, t)]
    return tuple(_rival(samples, t) for t in sorted(busy, key=lambda t: -(t.cpu_ns or 0)))


def late_by_the_lock_ns(samples: RunSamples) -> float:
    """By how much a look came late beyond what the looking thread itself had no core for."""
    return (samples.late_median_ns or 0) - (samples.looker_queued_ns or 0) / max(samples.looks, 1)


def _runs_python(samples: RunSamples, thread: SampledThread) -> bool:
    """Whether it is mostly in code of the program or a library, and on a core."""
    own = sum(looks for stack, looks in thread.stacks if _innermost_is_own(samples, stack))
    runs = thread.looks >= FEWEST_LOOKS and own >= OWN_RATIO * thread.looks
    main = next((t.cpu_ns for t in samples.threads if t.main), None)
    enough = CORE_RATIO * 1e9 * samples.seconds
    return runs and (thread.cpu_ns or 0) >= min(enough, enough if main is None else main)


def _rebuilds_tensors(samples: RunSamples, thread: SampledThread) -> bool:
    """Whether it rebuilds tensors that worker processes sent much of the time: those of a batch
    that is a few tensors take less than a millisecond."""
    at = sum(looks for s, looks in thread.stacks if _SENT in " ".join(samples.spelt(s)))
    return thread.looks >= FEWEST_LOOKS and at >= CORE_RATIO * thread.looks


_SENT = "torch/multiprocessing/reductions.py"


def _innermost_is_own(samples: RunSamples, stack: int) -> bool:
    """In the program or a library; in Python's own library, as a loop that polls a queue is; or
    where a framework takes a batch apart, object by object."""
    spelt = samples.spelt(stack)
    frame = next((f for name in spelt[:1] if (f := frame_of(name))), None)
    if frame is None or frame.owner is not Owner.FRAMEWORK:
        return frame is not None
    if frame.function in _RELEASES:
        return False
    called = in_standard_library(frame.file) and _own(spelt) is not None
    return called or _takes_apart(spelt)


# A loader's thread in the main process rebuilds each tensor that a worker sent, in Python; copying
# into pinned memory gives the lock up.
_QUEUES, _PUTS_IN = "multiprocessing/queues.py", "_feed"
_RELEASES = (
    "pin_memory", "wait", "select", "poll", "_recv", "recv", "recv_into", "accept", "join",
    "_wait_for_tstate_lock", "read", "readinto", "write", "communicate",
)  # fmt: skip


def _takes_apart(spelt: Iterable[str]) -> bool:
    """Whether something comes out of a queue; what goes in is written by another thread of it."""
    return any(_QUEUES in name and not name.endswith(_PUTS_IN) for name in spelt)


def _own(spelt: Iterable[str]) -> PythonFrame | None:
    """The innermost frame of the program's own code."""
    frames = (f for name in spelt if (f := frame_of(name)))
    return next((f for f in frames if f.owner is Owner.USER), None)


def _rival(samples: RunSamples, thread: SampledThread) -> Rival:
    looks: Counter[PythonFrame] = Counter()
    for stack, seen in thread.stacks:
        if frame := own_frame(samples.spelt(stack)):
            looks[frame] += seen
    at = max(looks, key=looks.__getitem__, default=None)
    where = f" in {at.function} ({at.file}:{at.line})" if at else ""
    unpickles = any(_takes_apart(samples.spelt(s)) for s, _ in thread.stacks)
    return Rival(
        f"thread {thread.name}{where}",
        (
            Evidence("that thread on a core", round((thread.cpu_ns or 0) / 1e9, 1), "s"),
            Evidence("of the seconds looked at", round(samples.seconds, 1), "s"),
            Evidence("a look waited for the lock", round(late_by_the_lock_ns(samples)), "ns"),
        ),
        Location(at.file, at.line, at.function) if at else None,
        unpickles and at is None,
        2 * sum(seen for s, seen in thread.stacks if polls_at(samples.spelt(s))) >= thread.looks,
    )


_ASKED = ("queue.py", "threading.py", "multiprocessing/", "concurrent/", "asyncio/")


def polls_at(spelt: tuple[str, ...]) -> bool:
    """Whether a look found it inside a queue, lock or event of Python's library, not waiting."""
    frame = next((f for name in spelt[:1] if (f := frame_of(name))), None)
    return frame is not None and in_standard_library(frame.file) and frame.file.startswith(_ASKED)


# ------------------------------------------------------------------------------------------------
# Threads that make floating-point numbers of what the program sends to the device.


_CONVERTS = (".astype()", ".float()", ".float32()")
_SCALES = ("/", "-", "*", "+", "/=", "-=", "*=", "+=")
_REORDERS = ("ascontiguousarray()", ".contiguous()")
_FLOATS = (("float",), ("double",))
FEWEST_SENT_BYTES = 1 << 20  # a step: less takes the link 50 µs, and is labels or scalars


def floats_made_bytes(trace: Trace, at: Location | None) -> int | None:
    """Bytes of floating-point numbers that a step sends to the device, where looks found the other
    threads in this function mostly at converting and scaling; else None.

    What they were converted from is not recorded.
    """
    samples = trace.run.samples if trace.run else None
    if samples is None or at is None:
        return None
    here = (at.file, at.function)
    seen: Counter[str] = Counter()
    for one in (one for thread in samples.threads if not thread.main for one in thread.spent):
        frame = own_frame(one.frames)
        if frame is not None and (frame.file, frame.function) == here:
            seen[_kind(one.doing)] += one.us
    if not seen["converts"] or 2 * (seen.total() - seen["else"]) < seen.total():
        return None
    sent = _floats_sent_bytes((trace.run.named if trace.run else None) or trace)
    return sent if sent >= FEWEST_SENT_BYTES else None


def _kind(doing: str) -> str:
    if doing.endswith(_CONVERTS):
        return "converts"
    return "scales" if doing in _SCALES or doing.endswith(_REORDERS) else "else"


def _floats_sent_bytes(trace: Trace) -> int:
    """A step, from the types that the copying operators were given."""
    ops = trace.device_ops
    if ops is None:
        return 0
    floats = launched_calls(
        trace
    ).where(  # aten::copy_: target, source
        lambda of: of.call.name == "aten::copy_" and of.call.dtypes[1:2] in _FLOATS
    )
    mine = floats & (category_of_device_ops(trace) == Category.COPY_H2D)
    mine &= device_ops_in_steps(trace)
    return round(per_step(trace, int(ops.filled("bytes", 0)[mine].sum())))
