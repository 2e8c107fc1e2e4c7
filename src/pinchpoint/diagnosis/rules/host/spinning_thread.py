"""A thread of the program asks again and again for what is not there yet.

## What it looks for
A Python thread beside that of the steps which looks of the whole run find at one line nearly all of
the time, and awake there: at a call that only asks or gives way (`sleep(0)`, `get_nowait()`,
`is_set()`, `empty()`), or at no call at all, as an empty loop is. Or, for 0.7 of the time in which
it does not sleep, in one function and what that calls, which asks queues, locks or events: a third
of that is inside of what is asked, the rest between two questions, at no call but a clock, and no
more than a tenth is other work. Its time on a core while it is found there has to be 0.07 of a core
or more; one that sleeps a millisecond between two looks at its queue uses 0.01 to 0.03. Of a loop
it is 0.07 of the time in it, which may be all that it gets beside others.

What it costs is between half of that time, and all for which the thread of the steps is neither on
a core nor waits for work. Where its operators compute on the CPU, the least is what it slept in
work of its own, ready to run on a core left out: only the lock is left that it can wait for. Where
cores are scarce, half of its time is by what both threads got of them.

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

from collections.abc import Iterator

from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.mean.ways import Way, asleep_us, wait_of, waits_for_work
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.diagnosis.evidence.spinning import spins
from pinchpoint.diagnosis.evidence.thread_of_steps import thread_of_steps
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NO_HINT, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.run_samples import SampledThread, Spent

_LOOKS = Record("looks at all threads: pinchpoint run python train.py")

RULE = Rule(
    needs=("host_ops",), record=_LOOKS, parent="gil-contention", advice=NO_HINT, fix_known=True
)

# Of its time on a core, what steps surely lose: a loop with sleep(0) on a machine with a free core
# was on one for 0.11 of the time, and steps lost 0.08.
LEAST_LOST_RATIO = 0.5
SCARCE_RATIO = 0.5  # of its time, the thread of the steps was ready to run and had no core


def check(trace: Trace) -> Iterator[Found]:
    """The thread that spins most, by its time on a core."""
    samples, base = trace.run.samples if trace.run else None, step_base_ns(trace)
    if samples is None or base is None:
        raise NotChecked("the threads of the whole run were not looked at")
    main = thread_of_steps(trace)
    spinning = [s for t in samples.threads if t is not main and (s := spins(t)) is not None]
    if main is None or not main.spent or not spinning:
        return
    most = max(spinning, key=lambda one: one.on_core_us)
    core = min(most.on_core_us / most.us, 1.0)
    high = round(_most_lost(main, core) * base)
    low = min(round(LEAST_LOST_RATIO * _share(main, core) * base), high)
    if computes_on_cpu(trace):
        low = min(max(low, round(_asleep_in_work(main) * base)), high)
    where = f" in {most.place}" if most.place else ""
    yield Found(
        summary=(
            f"Thread {most.thread} never sleeps: {100 * most.looks / most.of:.0f} % of the looks"
            f" find it {'asking' if most.loop else ''}{where}{_at(most.doing)}".replace("  ", " ")
            + f", {100 * core:.0f} % of the time on a core, where it"
            " takes Python's lock whenever the thread of the steps gives it up"
        ),
        evidence=(
            Evidence("that thread on a core there", round(most.on_core_us / 1e6, 1), "s"),
            Evidence("of the seconds looked at", round(most.us / 1e6, 1), "s"),
            Evidence("thread of the steps on a core", round(_on_core(main), 3), "ratio"),
            Evidence("asleep in work of its own", round(_asleep_in_work(main), 3), "ratio"),
        ),
        cost_ns_per_step=(low + high) // 2,
        saving_ns_per_step=(low, high),
        location=most.place,
        fix="Let the thread sleep until there is something to do: queue.get(), Event.wait()",
        hint="item = inbox.get(timeout=1.0)  # in place of a loop that asks",
        confidence="medium",
        confirm=ANY_PROGRAM,
    )


def _at(doing: str) -> str:
    return f" at {doing}" if doing else ""


def _us(main: SampledThread) -> int:
    return max(sum(one.us for one in main.spent) + main.unplaced_us, 1)


def _on_core(main: SampledThread) -> float:
    return min(sum(one.on_core_us for one in main.spent) / _us(main), 1.0)


def _waits(main: SampledThread) -> float:
    return sum(asleep_us(one) for one in main.spent if waits_for_work(one)) / _us(main)


def _share(main: SampledThread, core: float) -> float:
    """Of a core, what the other thread takes; where cores are scarce, of what both get of them."""
    on_core = _on_core(main)
    lacked = (main.queued_ns or 0) // 1000 >= SCARCE_RATIO * _us(main)
    return core / (core + on_core) * (1 - _waits(main)) if lacked and on_core else core


def _asleep_in_work(main: SampledThread) -> float:
    """Of its time, neither on a core, nor ready to run on one, nor waiting for work; 0 where the
    second is not known."""
    if main.queued_ns is None:
        return 0.0
    work = [one for one in main.spent if not waits_for_work(one) and not _told_else(one)]
    off_core = sum(one.us - min(one.on_core_us, one.us) for one in work)
    return max(off_core - main.queued_ns // 1000, 0) / _us(main)


def _told_else(one: Spent) -> bool:
    """Whether it sleeps by itself, or for a file or somebody outside."""
    return one.doing.endswith("sleep()") or (bool(one.waits) and wait_of(one) in _ELSE)


_ELSE = (Way.SLEEP, Way.NETWORK, Way.FILES, Way.PROCESS)


def _most_lost(main: SampledThread, core: float) -> float:
    """Of a step: all but the time on a core and in waits for work, if none of the former is lost to
    being woken; a part of that as large as the other thread's time on a core may be."""
    return max(1 - _waits(main) - _on_core(main) * (1 - core), 0.0)
