"""What the thread of the steps waits for, in words, with what to do about it."""

from pinchpoint.analysis.host.frames import frame_of
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis.evidence.awaited import (
    Sends,
    awaited,
    cores_free,
    others_work,
    starts_in_steps,
)
from pinchpoint.diagnosis.evidence.coroutines_asleep import coroutine_asleep
from pinchpoint.diagnosis.finding import Location
from pinchpoint.diagnosis.rank_finding import ASK_ALL_RANKS
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace


@dataclass(frozen=True)
class What:
    """One thing that is awaited."""

    waits_for: str
    fix: str
    location: Location | None = None  # of the cause, where it is known
    left_ratio: float = 0.0  # of the wait, with the fix


SLEEP = What("a sleep to end", "Wait for the event itself instead of sleeping")
_OUTSIDE = What(
    "another process or a request",
    "Ask for it earlier, or make the other side quicker; without a request nothing is lost",
)
THREAD = What(
    "another thread, or a timeout",
    "If it is a timeout to fill a batch, shorten it or make the batch smaller; if another thread"
    " is late, make that quicker. While there is nothing to do, nothing is lost",
)
OF_KIND = {
    GapKind.DATA: What(
        "its next batch", "Give the loader worker processes, or make what they do quicker"
    ),
    GapKind.SYNC: What(
        "the device", "Keep the result on the device, and read it a step late or more rarely"
    ),
    GapKind.HOST_COLLECTIVE: What(
        "other ranks, through the host",
        "Use the device's own backend, begin it earlier (async_op=True), send less, or do it more"
        f" rarely{ASK_ALL_RANKS}",
    ),
}
_ON_CPUS = What(
    "other ranks, through the host",
    f"Begin it earlier (async_op=True), send less, or do it more rarely{ASK_ALL_RANKS}",
)
_MESSAGE = What(
    "another rank's message, through the host",
    "Send each other more and smaller pieces, as micro-batches of the batch, so that both ranks"
    f" work at once, or begin to receive earlier (irecv){ASK_ALL_RANKS}",
)
# What a sharded model gathers for its passes has to come; how much of it a better order hides is
# not known: nothing to nearly all, so half.
_FOR_PASSES = What(
    "the other ranks' parts of its parameters, through the host",
    "Gather the next layers' parameters while this one computes (set_modules_to_forward_prefetch),"
    " send them in bfloat16 (MixedPrecisionPolicy), or do more work for each exchange: a larger"
    f" batch, several micro-batches for one{ASK_ALL_RANKS}",
    left_ratio=0.5,
)
_MESSAGES = (":recv", ":send")
_OF_SHARDED = "FSDP::"


def of_collective(call: str, around: str, *, on_cpus: bool) -> What:
    """What a collective of the host is for, by its name and the annotation around it."""
    if around.startswith(_OF_SHARDED):
        return _FOR_PASSES
    if call.endswith(_MESSAGES):
        return _MESSAGE
    return _ON_CPUS if on_cpus else OF_KIND[GapKind.HOST_COLLECTIVE]


_OUTSIDE_CALLS = ("select", "poll", "recv")


def what_others_do(trace: Trace) -> What | None:
    """What the other threads were seen doing. Who sends tasks to a process that has only just begun
    to import the program stands in that as well."""
    if (anew := _started_anew(trace)) is not None:
        return anew
    found = awaited(trace)
    if isinstance(found, Sends):
        return What(
            "worker processes, while a thread packs and sends their tasks"
            f" ({100 * found.looks / found.of:.0f} % of the looks at it)",
            "Send the workers names and numbers in place of data: a method sends its whole object"
            " with each task; let workers keep or read what they need",
        )
    if found is None:
        return _computing(trace)
    return What(
        f"{found.threads:.0f} threads that take turns at a lock: most stand in {found.waits},"
        f" one at a time {f'is in {found.answers}' if found.answers else 'works'} in {found.works}",
        found.fix,
        found.waits if found.answers else found.works,
        found.ratio_left(cores_free(trace) or 1.0),
    )


def _started_anew(trace: Trace) -> What | None:
    """Processes that are started step after step, as pools are that are made in a step."""
    started = starts_in_steps(trace)
    if started is None:
        return None
    return What(
        f"worker processes, {started:.2g} of which are started in each step",
        "Start one pool before the loop, give it the work of all steps, and close it in the end:"
        " a process that is spawned imports the program anew, one that is forked copies its tables",
    )


def _computing(trace: Trace) -> What | None:
    """Where the others compute; that it is waited for is likely, and not seen."""
    works = others_work(trace)
    if works is None:
        return None
    where = f"{works.place}, where the others compute on {works.cores:.1f} cores"
    return What(
        f"another thread, likely in {where}",
        "If it is that which is late, let it do less, as where it does the same again, or begin it"
        " earlier; where cores are free, spread it over more threads or processes",
    )


def what_a_loop_awaits(trace: Trace, call: str) -> What | None:
    """Where an event loop waits for its next timer: the sleep of a coroutine, by looks."""
    at = coroutine_asleep(trace) if what_of_call(call) is _OUTSIDE else None
    if at is None:
        return None
    return What(
        f"the sleep of a coroutine to end (asyncio.sleep(), in {at}): its event loop has nothing"
        " else to do",
        "Await the event itself in place of asking for it every so often (asyncio.Event,"
        " Queue.get(), a future); a sleep that lets a batch fill is no longer than the work of one",
        at,
    )


def what_of_call(call: str) -> What:
    """By the name of the call: ``<built-in function sleep>``, ``queue.py(154): get``."""
    frame = frame_of(call)
    name = frame.function if frame else call
    if name.startswith("<built-in function sleep"):
        return SLEEP
    outside = name in _OUTSIDE_CALLS or any(f"method {one}" in name for one in _OUTSIDE_CALLS)
    return _OUTSIDE if outside else THREAD
