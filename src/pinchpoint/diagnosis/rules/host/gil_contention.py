"""Another Python thread holds the interpreter lock while the launching thread wants it.

## What it looks for
A second thread of the process that runs Python much of the time, while the launching thread stands
still again and again in work of its own. Either each time until the other thread begins to sleep or
to wait, or for about the interpreter's switch interval (5 milliseconds unless changed). In a
recording without Python stacks stalls of that length are enough, if they fill most of the step.
Where looks at the run find it asleep before a lock of the program, while this one is free, that is
`host-waits`. Stalls of other lengths are a lost core (`cpu-limited`); without stacks the other
thread is inferred, and the confidence is medium; not where samples of all threads show none, and
not where operators compute on the CPU, which take that long by themselves. The samples that
`pinchpoint run` takes of all threads name it: one in the program's own code that runs on a core,
while the looks themselves wait for the lock; or a loader's, which takes batches of many small
tensors apart, also where looks find the lock free between two of them. Where they found it mostly
at converting and scaling, and steps copy floats to the device, the advice is to send what it reads
and to convert there. The gain of fewer than ten recorded stalls, and than steps, is from what such
a count surely shows of the run to all of them.

## Why it matters
Only one thread runs Python at a time. Each time the launching thread gives the lock up, for any
call into C++ that releases it, it gets it back one switch interval later.

## How to fix it
Move the helper's work into a process, or into code that releases the lock; do less of it.

## When to ignore it
Helpers that mostly wait: feeders of loaders, writers, monitors.
"""

import math
from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import parents
from pinchpoint.analysis.host.frames import shows_python
from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.mean.stacks import own_frame
from pinchpoint.analysis.mean.ways import waits_for_work
from pinchpoint.analysis.mean.whole_run import NS_PER_US, run_account
from pinchpoint.analysis.replay import RemoveHostTime
from pinchpoint.analysis.run import run_facts
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step, rows_in_steps
from pinchpoint.analysis.time.stalls import (
    SWITCH_INTERVAL_NS,
    Stalls,
    busy_python_threads,
    lock_waits,
    long_pieces,
    stalls,
)
from pinchpoint.diagnosis.evidence.awaited import kept_lock
from pinchpoint.diagnosis.evidence.device_work import busiest_place
from pinchpoint.diagnosis.evidence.loading import loads
from pinchpoint.diagnosis.evidence.rivals import Rival, floats_made_bytes, sampled_rivals
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import STACKS_OF_ALL_THREADS
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.run_samples import SampledThread

RULE = Rule(needs=("host_ops",), record=STACKS_OF_ALL_THREADS)

# Of the step; a judgement: single long operators are taken for stalls by chance.
LEAST_STALL_RATIO = 0.1
MOSTLY_RATIO = 0.5  # of the step: enough without stacks, which would show the other thread
# fitted: recordings without Python stacks, beside a thread that holds the lock. Single long calls
# do not make many stalls, nearly all of them a few switch intervals long.
FEWEST_STALLS, FEW_TURNS, NEARLY_ALL = 20, 5.5, 0.9
# A thread in Python this much of the time competes: with less the stalls cannot be material, since
# they lie in its runs.
BUSY_RATIO = 0.2


def check(trace: Trace) -> Iterator[Found]:
    """Stalls of the launching thread beside a thread that runs Python."""
    steps = judged_steps(trace)
    if not len(steps):
        return
    rivals = busy_python_threads(trace, BUSY_RATIO)
    seen = sampled_rivals(trace)
    held = _with_a_rival(trace) if seen else lock_waits(trace)
    length = float(np.mean(steps.end_ns - steps.start_ns))
    total = per_step(trace, int(held.excess_ns.sum()))
    unseen = _may_be_unseen(trace) and _in_turns(held) and total >= MOSTLY_RATIO * length
    if not (rivals or seen or unseen) or not len(held.rows) or total < LEAST_STALL_RATIO * length:
        return
    if kept_lock(trace) is not None:  # that is another lock, of which host-waits tells
        return
    longest = int(np.argmax(held.excess_ns))
    where = _where_it_runs(trace, rivals[0]) if rivals and not seen else None
    rival = seen[0].said if seen else _name(trace, rivals[0], where) if rivals else None
    host = trace.host_ops
    assert host is not None
    row = int(held.rows[longest])
    place = where or _place(trace, seen)
    sent_bytes = floats_made_bytes(trace, place)
    from pinchpoint.diagnosis.rules.host._disturbed import undisturbed_operators

    sure = _sure_ratio(len(held.rows), len(steps), min(total / length, 1.0))
    yield Found(
        summary=(
            f"The launching thread stands still {100 * (min(total / length, 1)):.0f} % of the time"
            + (f" while {rival} runs Python" if rival else ", a switch interval each time,")
            + ("" if rival else " as if another thread held the interpreter's lock")
        ),
        evidence=(
            Evidence("stalls", round(per_step(trace, len(held.rows)), 1), "per step"),
            Evidence("stalls", round(total), "ns per step"),
            Evidence(
                "longest",
                int(held.excess_ns[longest]),
                "ns",
                int(host["start_ns"][row]),
                trace.text(host, "name", row),
            ),
            *(seen[0].evidence if seen else ()),
            *_sent(sent_bytes),
        ),
        cost_ns_per_step=round(total),
        changes=(
            RemoveHostTime(held.end_ns - held.excess_ns, held.end_ns),
            *undisturbed_operators(trace, held, only_behind=True),
        ),
        saving_ns_per_step=(round(sure * total), round(total)) if sure < 1 else None,
        location=place,
        confidence="high" if rival and sure == 1 else "medium",
        fix=_fix(seen)[0] if sent_bytes is None else _FIX_FOR_CONVERTING,
        hint=_fix(seen)[1] if sent_bytes is None else _HINT_FOR_CONVERTING,
    )


# A window with more stalls tells their share of the time within a fifth.
FEW_STALLS = 10


def _sure_ratio(count: int, steps: int, share: float) -> float:
    """Of the stalls' time in a window, what the run has of it at least, within a standard error.

    Stalls that come by themselves are counted with an error of their root; where they fill most of
    the time, of what is left between them. One a step is a matter of the step.
    """
    if count >= min(FEW_STALLS, steps):
        return 1.0
    return max(1 - math.sqrt((1 - share) / count), 0.0)


FEWEST_RIVALS = 2  # one alone has the lock whenever it wants it
LEAST_RUN_RATIO = 0.1  # of a run, that is lost to the lock


def check_run(trace: Trace) -> Iterator[Found | Small]:
    """Threads of a whole run that wanted the lock and did not have it, most work first."""
    samples, account = trace.run.samples if trace.run else None, run_account(trace)
    if samples is None or account is None:
        raise NotChecked("the threads of the whole run were not looked at")
    wanting = [w for thread in samples.threads if (w := _wants(thread)) is not None]
    wanting = [w for w in wanting if w.wanted_ns >= BUSY_RATIO * 1e9 * samples.seconds]
    wanting.sort(key=lambda w: -w.on_core_ns)
    if len(wanting) < FEWEST_RIVALS:
        return
    lost_ns = sum(w.lost_ns for w in wanting)
    cores = run_facts(trace).cores_allowed or run_facts(trace).cores_there or len(wanting)
    at_once = max(min(len(wanting), int(cores)), 1)
    together_ns = sorted(w.wanted_ns for w in wanting)[-FEWEST_RIVALS]  # two and more wanted it
    most_ns = min(round(together_ns * (1 - 1 / at_once)), account.total_ns)
    if (lost := min(lost_ns, most_ns)) < LEAST_RUN_RATIO * account.total_ns:
        yield Small(lost / account.total_ns, LEAST_RUN_RATIO, "the run")
        return
    beside = next(w for w in wanting if not w.main)
    where = f" in {beside.location}" if beside.location else ""
    from pinchpoint.diagnosis.evidence.run_places import of_run

    long = of_run(most_ns, account.total_ns)
    yield Found(
        summary=f"{len(wanting)} threads take turns at Python's lock, one of them{where}: together"
        f" they run on {sum(w.on_core_ns for w in wanting) / account.total_ns:.1f} cores",
        evidence=(
            *(
                Evidence(f"{'main thread' if w.main else w.name}: on a core", w.on_core_ns, "ns")
                for w in wanting[:_MOST_NAMED]
            ),
            Evidence("all of them, for want of the lock", lost_ns, "ns"),
            Evidence("cores allowed", cores, "count"),
        ),
        cost_ns_per_step=most_ns,
        location=beside.location,
        fix=_FIX,
        hint="ProcessPoolExecutor()  # in place of ThreadPoolExecutor()",
        consequence=f"at most {long}",
        run_ratio=most_ns / account.total_ns,
    )


_MOST_NAMED = 4  # threads, in the evidence


@dataclass(frozen=True)
class _Wanting:
    """A thread that had Python to run."""

    name: str
    main: bool
    wanted_ns: int
    on_core_ns: int
    lost_ns: int  # that somebody else held the lock
    location: Location | None


def _wants(thread: SampledThread) -> _Wanting | None:
    """None for one that waits for something else whenever it is looked at."""
    work = [one for one in thread.spent if one.held_us and not waits_for_work(one)]
    if not work:
        return None
    wanted, ran = sum(o.held_us for o in work), sum(o.on_core_us for o in work)
    at = max(work, key=lambda one: one.us)
    frame = own_frame(at.frames)
    return _Wanting(
        thread.name,
        thread.main,
        NS_PER_US * wanted,
        NS_PER_US * ran,
        max(NS_PER_US * (wanted - ran) - (thread.queued_ns or 0), 0),
        None if frame is None else Location(frame.file, frame.line, frame.function),
    )


def _fix(seen: tuple[Rival, ...]) -> tuple[str, str | None]:
    """What to do about the other thread, and code that shows it."""
    if _takes_batches_apart(seen):
        return _FIX_FOR_A_LOADER, None
    return (_FIX_FOR_POLLING, _HINT_FOR_POLLING) if seen and seen[0].polls else (_FIX, _HINT)


def _sent(sent_bytes: int | None) -> tuple[Evidence, ...]:
    if sent_bytes is None:
        return ()
    return (Evidence("floats copied to the device", sent_bytes, "bytes per step"),)


_FIX_FOR_CONVERTING = (
    "Send what the threads read in its own narrow type (8-bit pixels are a quarter of the bytes)"
    " and convert and scale on the device. Else: a process of its own for that work"
)
_HINT_FOR_CONVERTING = "x = batch.to(device, non_blocking=True).float().sub_(mean).div_(spread)"
_FIX_FOR_POLLING = "Let the other thread wait for what it asks for again and again"
_HINT_FOR_POLLING = "item = inbox.get(timeout=1.0)  # instead of get_nowait() in a loop"
_FIX = "Move the other thread's work into a process of its own"
_HINT = "multiprocessing.Process(target=helper)  # instead of threading.Thread"
_FIX_FOR_A_LOADER = (
    "Send few large tensors from the workers: let collate_fn put the many small ones of a batch"
    " into one of each kind"
)


def _takes_batches_apart(seen: tuple[Rival, ...]) -> bool:
    return bool(seen) and seen[0].unpickles


def _place(trace: Trace, seen: tuple[Rival, ...]) -> Location | None:
    """Where the other thread is; of a loader's, where its batches are taken."""
    loader = loads(trace) if _takes_batches_apart(seen) else None
    return loader.spans.place if loader else seen[0].location if seen else None


def _may_be_unseen(trace: Trace) -> bool:
    """Whether another thread may run Python though none is seen: neither stacks nor samples would
    show it. Operators that compute on the CPU take long without anybody's lock."""
    sampled = trace.run is not None and trace.run.samples is not None
    return not (shows_python(trace) or sampled or computes_on_cpu(trace))


def _with_a_rival(trace: Trace) -> Stalls:
    """Where a thread is seen that holds the lock: whole switch intervals, or its shorter turns."""
    known = (lock_waits(trace), long_pieces(trace), stalls(trace))
    return max(known, key=lambda found: int(found.excess_ns.sum()))


def _in_turns(held: Stalls) -> bool:
    """Many stalls of one switch interval or a few, as no single long call makes."""
    short = held.excess_ns < FEW_TURNS * SWITCH_INTERVAL_NS
    return len(short) >= FEWEST_STALLS and float(short.mean()) >= NEARLY_ALL


def _name(trace: Trace, thread: int, where: Location | None) -> str:
    rival = trace.threads[thread]
    label = rival.label or str(rival.thread)
    said = label if label.startswith("thread ") else f"thread {label}"
    return said if where is None else f"{said} in {where}"


def _where_it_runs(trace: Trace, thread: int) -> Location | None:
    """The program's function in which the other thread is longest in the judged steps."""
    host = trace.host_ops
    assert host is not None
    own_ns = host["duration_ns"].astype(np.int64)
    inner = np.append(np.zeros(len(host), np.int64), 0)
    np.add.at(inner, parents(host), own_ns)
    own_ns = np.maximum(own_ns - inner[:-1], 0)
    rows = np.flatnonzero((host["thread"] == thread) & rows_in_steps(trace, host))
    place, _ = busiest_place(trace, rows, own_ns[rows])
    return place if place is not None and place.file is not None else None
