"""Threads that ask again and again for what is not there yet, by looks at a whole run.

Two shapes. One line at which nearly all looks find the thread, at a call that only asks, or at
none. Or a loop of several lines and functions of the program that asks queues, locks or events of
Python's library: there nearly all looks at one function, with all that it calls, find the thread
inside of what is asked, or between two questions, where nothing is called but a clock.
"""

from collections import Counter
from collections.abc import Sequence

from pinchpoint.analysis.host.frames import Owner, PythonFrame, frame_of
from pinchpoint.analysis.mean.stacks import own_frame
from pinchpoint.diagnosis.evidence.rivals import FEWEST_LOOKS, polls_at
from pinchpoint.diagnosis.finding import Location
from pinchpoint.frozen import dataclass
from pinchpoint.trace.run_samples import SampledThread, Spent

AT_ONE_LINE_RATIO = 0.7  # of its time: work that a thread does lies at many lines
# Of a core. A loop that sleeps a millisecond in each turn was on a core for 1 to 3 %, one with
# sleep(0) for 9 to 16 %, one without any for all of it.
LEAST_CORE_RATIO = 0.07
LOOP_RATIO = 0.7  # of the time in which it did not sleep: the same, of a loop
LEAST_AWAKE_RATIO = 0.2  # of its time, in the loop: one that mostly waits is beside it seldom
# Of the time in a loop, inside of what is asked: an answer takes as long as the lines around it.
LEAST_ASKING_RATIO = 1 / 3
MOST_WORK_RATIO = 0.1  # of the time in a loop: who does something with each answer waits for none
ASLEEP_RATIO = 0.5  # in a function that waits, on a core for less than that of the time
_ASKS = (
    "sleep()", "get_nowait()", "is_set()", "empty()", "full()", "qsize()", "poll()", "done()",
    "is_alive()", "query()", "locked()", "sched_yield()", "acquire()", "len()", "ready()",
)  # fmt: skip
_WAITING = ("wait", "acquire", "join", "_wait_for_tstate_lock", "select", "poll", "result")
_CLOCKS = ("perf_counter()", "perf_counter_ns()", "monotonic()", "monotonic_ns()", "time.time()")
_COMPARED = ("<", ">", "<=", ">=", "==", "!=")


@dataclass(frozen=True)
class Spinning:
    """A thread at the line at which it asks."""

    thread: str
    place: Location | None
    doing: str
    looks: int
    of: int
    us: int  # that it was looked at
    on_core_us: int  # of them, on a core while it asks
    loop: bool = False  # it asks from several lines


def spins(thread: SampledThread) -> Spinning | None:
    """None for one that works, or sleeps."""
    us = sum(one.us for one in thread.spent) + thread.unplaced_us
    of = sum(one.looks for one in thread.spent)
    if not us or of < FEWEST_LOOKS:
        return None
    line = _at_one_line(thread, us, of)
    if line is not None:
        return line if line.on_core_us >= LEAST_CORE_RATIO * us else None
    return _in_a_loop(thread, us, of)


def _at_one_line(thread: SampledThread, us: int, of: int) -> Spinning | None:
    lines: Counter[tuple[str, int]] = Counter()
    owned = ((own_frame(one.frames), one) for one in thread.spent if _asks(one))
    asking = [(frame, one) for frame, one in owned if frame is not None]
    for frame, one in asking:
        lines[frame.file, frame.line] += one.us
    if not lines or max(lines.values()) < AT_ONE_LINE_RATIO * us:
        return None
    at = max(lines, key=lines.__getitem__)
    mine = [(frame, one) for frame, one in asking if (frame.file, frame.line) == at]
    frame, longest = max(mine, key=lambda pair: pair[1].us)
    return _spinning(thread.name, frame, longest.doing, [one for _, one in mine], us, of)


def _in_a_loop(thread: SampledThread, us: int, of: int) -> Spinning | None:
    """The innermost of the functions in which, with all that they call, it asks for longest."""
    awake = [one for one in thread.spent if not _sleeps(one)]
    functions: dict[tuple[str, str], list[Spent]] = {}
    for one in awake:
        for function in _functions(one):
            functions.setdefault(function, []).append(one)
    loops = [inside for inside in functions.values() if _only_asks(inside)]
    if not loops:
        return None
    most_us = max(_us(inside) for inside in loops)
    inside = min(
        (loop for loop in loops if _us(loop) == most_us),
        key=lambda loop: sum(len(one.frames) for one in loop),
    )
    on_core_us = sum(one.on_core_us for one in inside)
    if most_us < max(LOOP_RATIO * _us(awake), LEAST_AWAKE_RATIO * us):
        return None
    if on_core_us < LEAST_CORE_RATIO * most_us:
        return None
    lines: Counter[PythonFrame] = Counter()
    for one in inside:
        if _inside_what_is_asked(one) and (frame := own_frame(one.frames)) is not None:
            lines[frame] += one.us
    return _spinning(thread.name, max(lines, key=lines.__getitem__), "", inside, us, of, loop=True)


def _only_asks(inside: Sequence[Spent]) -> bool:
    us = _us(inside)
    asking = _us([one for one in inside if _inside_what_is_asked(one)])
    between = _us([one for one in inside if not _inside_what_is_asked(one) and _idles(one)])
    return asking >= LEAST_ASKING_RATIO * us and asking + between >= (1 - MOST_WORK_RATIO) * us


def _inside_what_is_asked(one: Spent) -> bool:
    return polls_at(one.frames) or one.doing.endswith(_ASKS)


def _idles(one: Spent) -> bool:
    """Whether a look found it at no call in a line of the program, or at a clock."""
    frame = frame_of(one.frames[0]) if one.frames else None
    own = frame is not None and frame.owner is Owner.USER
    return own and (not one.doing or one.doing in _COMPARED or one.doing.endswith(_CLOCKS))


def _sleeps(one: Spent) -> bool:
    frame = frame_of(one.frames[0]) if one.frames else None
    waits = frame is not None and frame.owner is not Owner.USER and frame.function in _WAITING
    return waits and one.on_core_us < ASLEEP_RATIO * one.us


def _functions(one: Spent) -> set[tuple[str, str]]:
    """Of the program, that are on the stack."""
    frames = (frame_of(name) for name in one.frames)
    return {(f.file, f.function) for f in frames if f is not None and f.owner is Owner.USER}


def _asks(one: Spent) -> bool:
    """Whether a look found it at a call that gives nothing but an answer or its turn, at none, or
    inside a queue or an event that it asks."""
    return not one.doing or one.doing.endswith(_ASKS) or polls_at(one.frames)


def _us(seen: Sequence[Spent]) -> int:
    return sum(one.us for one in seen)


def _spinning(
    name: str, at: PythonFrame, doing: str, mine: Sequence[Spent], us: int, of: int, *,
    loop: bool = False,
) -> Spinning:  # fmt: skip
    return Spinning(
        name,
        Location(at.file, at.line, at.function),
        doing,
        sum(one.looks for one in mine),
        of,
        us,
        sum(one.on_core_us for one in mine),
        loop,
    )
