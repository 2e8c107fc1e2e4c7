"""A thread of the program asks again and again for what is not there yet.

## What it looks for
A Python thread beside that of the steps which looks of the whole run find at one line nearly all of
the time, and awake there: at a call that only asks or gives way (`sleep(0)`, `get_nowait()`,
`is_set()`, `empty()`), or at no call at all, as an empty loop is. Its time on a core while it is
found there has to be 0.07 of a core or more; one that sleeps a millisecond between two looks at
its queue uses 0.01 to 0.03. What it costs is between half of that time, and all for which the
thread of the steps is neither on a core nor waits for work.

## Why it matters
Only one thread runs Python at a time. One that never sleeps takes the lock each time the thread of
the steps gives it up, which is at most calls into C++; that one then waits to be woken, up to a
switch interval (5 milliseconds). Where cores are scarce, it takes one of them, too.

## How to fix it
Let it sleep until somebody wakes it: `queue.get()`, `event.wait()`, a condition; or, if it has to
ask, with a pause that is long beside what asking takes (`sleep(0.005)`).

## When to ignore it
Where cores are free and the line releases the lock for most of its time.
"""

from collections import Counter
from collections.abc import Iterator

from pinchpoint.analysis.mean.rare_steps import own_frame
from pinchpoint.analysis.mean.ways import asleep_us, waits_for_work
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.diagnosis.evidence.rivals import FEWEST_LOOKS, polls_at
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NO_HINT, NotChecked, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.run_samples import SampledThread, Spent

_LOOKS = Record("looks at all threads: pinchpoint run python train.py")

RULE = Rule(
    needs=("host_ops",), record=_LOOKS, parent="gil-contention", advice=NO_HINT, fix_known=True
)

AT_ONE_LINE_RATIO = 0.7  # of its time: work that a thread does lies at many lines
# Of a core. A loop that sleeps a millisecond in each turn was on a core for 1 to 3 %, one with
# sleep(0) for 9 to 16 %, one without any for all of it.
LEAST_CORE_RATIO = 0.07
# Of its time on a core, what steps surely lose: a loop with sleep(0) on a machine with a free core
# was on one for 0.11 of the time, and steps lost 0.08.
LEAST_LOST_RATIO = 0.5
_ASKS = (
    "sleep()", "get_nowait()", "is_set()", "empty()", "full()", "qsize()", "poll()", "done()",
    "is_alive()", "query()", "locked()", "sched_yield()", "acquire()", "len()", "ready()",
)  # fmt: skip


def check(trace: Trace) -> Iterator[Found]:
    """The thread that spins most, by its time on a core."""
    samples, base = trace.run.samples if trace.run else None, step_base_ns(trace)
    if samples is None or base is None:
        raise NotChecked("the threads of the whole run were not looked at")
    main = next((thread for thread in samples.threads if thread.main), None)
    spinning = [s for t in samples.threads if not t.main and (s := _spins(t)) is not None]
    if main is None or not main.spent or not spinning:
        return
    most = max(spinning, key=lambda one: one.on_core_us)
    core = min(most.on_core_us / most.us, 1.0)
    low, high = round(LEAST_LOST_RATIO * core * base), round(_most_lost(main, core) * base)
    where = f" in {most.place}" if most.place else ""
    yield Found(
        summary=(
            f"Thread {most.thread} never sleeps: {100 * most.looks / most.of:.0f} % of the looks"
            f" find it{where}{_at(most.doing)}, {100 * core:.0f} % of the time on a core, where it"
            " takes Python's lock whenever the thread of the steps gives it up"
        ),
        evidence=(
            Evidence("that thread on a core there", round(most.on_core_us / 1e6, 1), "s"),
            Evidence("of the seconds looked at", round(most.us / 1e6, 1), "s"),
            Evidence("thread of the steps on a core", round(_on_core(main), 3), "ratio"),
        ),
        cost_ns_per_step=max(low, high) // 2,
        saving_ns_per_step=(min(low, high), max(low, high)),
        location=most.place,
        fix="Let the thread sleep until there is something to do: queue.get(), Event.wait()",
        hint="item = inbox.get(timeout=1.0)  # in place of a loop that asks",
        confidence="medium",
        confirm=ANY_PROGRAM,
    )


@dataclass(frozen=True)
class _Spinning:
    """A thread at the line at which it asks."""

    thread: str
    place: Location | None
    doing: str
    looks: int
    of: int
    us: int  # that it was looked at
    on_core_us: int  # at that line


def _spins(thread: SampledThread) -> _Spinning | None:
    """None for one that works, or sleeps."""
    us = sum(one.us for one in thread.spent) + thread.unplaced_us
    of = sum(one.looks for one in thread.spent)
    if not us or of < FEWEST_LOOKS:
        return None
    lines: Counter[tuple[str, int]] = Counter()
    owned = ((own_frame(one.frames), one) for one in thread.spent if _asks(one))
    asking = [(frame, one) for frame, one in owned if frame is not None]
    for frame, one in asking:
        lines[frame.file, frame.line] += one.us
    if not lines or max(lines.values()) < AT_ONE_LINE_RATIO * us:
        return None
    at = max(lines, key=lines.__getitem__)
    mine = [(frame, one) for frame, one in asking if (frame.file, frame.line) == at]
    on_core_us = sum(one.on_core_us for _, one in mine)
    if on_core_us < LEAST_CORE_RATIO * us:
        return None
    frame, longest = max(mine, key=lambda pair: pair[1].us)
    return _Spinning(
        thread.name,
        Location(frame.file, frame.line, frame.function),
        longest.doing,
        sum(one.looks for _, one in mine),
        of,
        us,
        on_core_us,
    )


def _asks(one: Spent) -> bool:
    """Whether a look found it at a call that gives nothing but an answer or its turn, at none, or
    inside a queue or an event that it asks."""
    return not one.doing or one.doing.endswith(_ASKS) or polls_at(one.frames)


def _at(doing: str) -> str:
    return f" at {doing}" if doing else ""


def _on_core(main: SampledThread) -> float:
    us = sum(one.us for one in main.spent)
    return min(sum(one.on_core_us for one in main.spent) / max(us, 1), 1.0)


def _most_lost(main: SampledThread, core: float) -> float:
    """Of a step: all but the time on a core and in waits for work, if none of the former is lost to
    being woken; a part of that as large as the other thread's time on a core may be."""
    us = sum(one.us for one in main.spent)
    waits = sum(asleep_us(one) for one in main.spent if waits_for_work(one)) / max(us, 1)
    return max(1 - waits - _on_core(main) * (1 - core), 0.0)
