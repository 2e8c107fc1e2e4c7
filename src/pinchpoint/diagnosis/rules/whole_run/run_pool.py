"""Worker processes get less done than they could: uneven tasks, short lives, or much to send.

## What it looks for
Processes that the program started with `multiprocessing` and waits for, looked at one by one: how
long each was on a core and how long it waited for something to do; how many lived for less than a
second; and the time that they and the main process spend in pickling and in pipes.

## Why it matters
A pool is as slow as its busiest worker. A process takes a tenth of a second and more to start, and
what it is sent is copied four times on its way.

## How to fix it
Smaller tasks (`chunksize`) so that no worker gets all the long ones; one pool for all of the run;
send names and numbers in place of arrays, share memory, let workers read their input themselves.

## When to ignore it
Where there is one task more than workers, and nothing to divide.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pinchpoint.analysis.mean.whole_run import NS_PER_US
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import RunSamples, Trace
from pinchpoint.trace.durations import duration
from pinchpoint.trace.run_samples import Spent

if TYPE_CHECKING:
    from pinchpoint.analysis.mean.crew import Crew


RULE = Rule(
    needs=(),
    record=Record("a whole run: pinchpoint run python train.py"),
    looks_at="run alone",
)

UNEVEN_RATIO = 2.0  # the busiest worker's time on a core to the mean one's
BUSIEST_RATIO = 0.5  # of the wait, that the busiest worker works: then it is what is waited for
MOVING_RATIO = 0.25  # of the time on cores of all processes, in pickling and pipes
SHORT_S, MANY_RATIO = 1.0, 4.0  # workers that live shorter; so many times the cores of them


def check(trace: Trace) -> Iterator[Found]:
    """What keeps worker processes from their work."""
    samples = trace.run.samples if trace.run else None
    if samples is None or len(samples.children) < 2:
        return
    yield from _moving(trace, samples)
    yield from _restarted(trace, samples)
    from pinchpoint.analysis.mean.crew import crew

    team = crew(trace)
    if team is not None and team.processes:
        yield from _uneven(trace, team)


def _uneven(trace: Trace, team: "Crew") -> Iterator[Found]:
    busiest, mean_ns = team.members[0], team.on_core_ns / len(team.members)
    uneven = busiest.on_core_ns >= UNEVEN_RATIO * mean_ns
    if not uneven or busiest.busy_ns < BUSIEST_RATIO * team.wait_ns:
        return
    most_ns = round(team.wait_ns * (1 - mean_ns / busiest.on_core_ns))
    from pinchpoint.diagnosis.evidence.run_places import account_of, in_run, location_of

    at, total_ns = location_of(team.places[0]) if team.places else None, account_of(trace).total_ns
    yield _found(
        trace,
        most_ns,
        f"One of {len(team.members)} worker processes works {in_run(busiest.on_core_ns, total_ns)},"
        f" the mean one {in_run(mean_ns, total_ns)}: the others wait for it",
        at,
        "Give tasks out one by one, the longest first, or divide the long ones",
        "pool.imap_unordered(work, sorted(tasks, key=size, reverse=True), chunksize=1)",
        Evidence("busiest worker, on a core", busiest.on_core_ns, "ns"),
        Evidence("mean worker", round(mean_ns), "ns"),
    )


def _moving(trace: Trace, samples: RunSamples) -> Iterator[Found]:
    """Time in pickling and in pipes, of all threads of the main process and of the workers."""
    threads = [*samples.threads, *(child.thread for child in samples.children)]
    every = [one for thread in threads for one in thread.spent]
    moves = [one for one in every if _moves(one)]
    moving = sum(one.on_core_us for one in moves)
    whole = sum(one.on_core_us for one in every)
    own = sum(o.us for t in samples.threads for o in t.spent if o.on_core_us and _moves(o))
    if moving < MOVING_RATIO * whole:
        return
    from pinchpoint.diagnosis.evidence.run_places import account_of, location_of

    yield _found(
        trace,
        NS_PER_US * own,
        f"{100 * moving / max(whole, 1):.0f} % of what all processes compute is to pickle and send"
        " what they give each other",
        next((location_of(p) for p in account_of(trace).places if p.at is not None), None),
        "Send less: names or ranges in place of arrays, shared memory, results summed up by the"
        " worker",
        "pool.map(load_and_work, paths)  # in place of pool.map(work, map(load, paths))",
        Evidence("pickling and pipes, on cores", NS_PER_US * moving, "ns"),
        Evidence("all that was on cores", NS_PER_US * whole, "ns"),
    )


def _restarted(trace: Trace, samples: RunSamples) -> Iterator[Found]:
    """Workers that are started for a moment each."""
    cores = (samples.usage.cores_allowed if samples.usage else None) or 1
    short = [c for c in samples.children if c.seconds < SHORT_S]
    if len(short) < MANY_RATIO * cores or 2 * len(short) < len(samples.children):
        return
    lived = sum(c.seconds for c in short) / len(short)
    worked_ns = sum((c.usage.user_ns or 0) + (c.usage.kernel_ns or 0) for c in short)
    from pinchpoint.diagnosis.evidence.run_places import account_of, location_of

    yield _found(
        trace,
        max(account_of(trace).total_ns - round(worked_ns / cores), 0),
        f"{len(short)} worker processes are started, each for {duration(round(1e9 * lived))}",
        next((location_of(p) for p in account_of(trace).places if p.at is not None), None),
        "Start one pool, once, and give it all tasks",
        "with Pool() as pool:  # around the loop",
        Evidence("worker processes that lived less than a second", len(short), "count"),
    )


_MODULES = ("pickle.py", "multiprocessing/connection.py", "multiprocessing/reduction.py")
_FUNCTIONS = (": dumps", ": loads", ": dump", ": _send", ": _send_bytes", ": send", ": _recv_bytes")


def _moves(one: Spent) -> bool:
    """At work in a function that packs, sends or unpacks; one that waits for work is none."""
    inner = one.frames[:3]
    named = any(m in frame and frame.endswith(_FUNCTIONS) for frame in inner for m in _MODULES)
    return named or one.doing in ("_ForkingPickler.dumps()", "_ForkingPickler.loads()")


def _found(
    trace: Trace,
    most_ns: int,
    summary: str,
    at: Location | None,
    fix: str,
    hint: str,
    *evidence: Evidence,
) -> Found:
    from pinchpoint.diagnosis.evidence.run_places import SURE_RATIO, account_of, of_run

    total_ns = account_of(trace).total_ns
    return Found(
        summary=summary,
        evidence=evidence,
        cost_ns_per_step=most_ns,
        location=at,
        fix=fix,
        hint=hint,
        consequence=f"at most {of_run(most_ns, total_ns)}",
        run_ratio=max(most_ns / max(total_ns, 1), SURE_RATIO),
        confidence="medium",
    )
