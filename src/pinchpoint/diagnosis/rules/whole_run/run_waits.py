"""The program waits: it sleeps, or for files, the network, another program or thread.

## What it looks for
Looks at the main thread of a run of which nothing else was recorded, at which it slept in the
kernel: in which function of the program, and for what, by the kernel's function (a timer, a
socket, a disk, a child, a lock) and Python's own modules on the stack. Waiting for worker processes
and threads of the program that compute meanwhile is no cause; what they do is told instead.

## Why it matters
A thread that waits computes nothing. No faster code helps.

## How to fix it
Do not wait for what nobody needs; ask for several things at once (threads, asyncio), ahead of time,
or once for all; keep what was fetched.

## When to ignore it
Where the pace is set by somebody else, as of a service that waits for requests.
"""

from collections.abc import Iterator

from pinchpoint.analysis.mean.ways import WAITS, Way
from pinchpoint.analysis.mean.whole_run import RunPlace, share_of_way
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import Trace

RULE = Rule(
    needs=(),
    record=Record("a whole run: pinchpoint run python train.py"),
    looks_at="run alone",
)

_FIX = {
    Way.SLEEP: (
        "Do not sleep for a fixed time: wait for what is to happen, or leave it out",
        "event.wait(timeout=1.0)  # returns as soon as it is set",
    ),
    Way.NETWORK: (
        "Ask for several things at once or ahead of time, over one connection, and keep answers",
        "with ThreadPoolExecutor(16) as pool: results = list(pool.map(fetch, urls))",
    ),
    Way.FILES: (
        "Read and write more at a time, ahead of time in another thread, and flush less often",
        None,
    ),
    Way.PROCESS: (
        "Start fewer programs, several at once, or do their work in this process",
        "workers = [subprocess.Popen(c) for c in commands]; [w.wait() for w in workers]",
    ),
    Way.LOCK: ("See what the other thread does meanwhile: it sets the pace", None),
    Way.WAIT: ("See what it waits for there", None),
}


def check(trace: Trace) -> Iterator[Found | Small]:
    """One finding for each place and kind of waiting that takes a large part of the run."""
    from pinchpoint.analysis.mean.crew import crew

    served = crew(trace) is not None
    from pinchpoint.diagnosis.evidence.run_places import account_of

    for place in account_of(trace).places:
        for way in WAITS:
            if not (served and way in (Way.PROCESS, Way.LOCK)):
                yield from _of(trace, place, way)


def _of(trace: Trace, place: RunPlace, way: Way) -> Iterator[Found | Small]:
    share = share_of_way(place, way)
    from pinchpoint.diagnosis.evidence.run_places import (
        SURE_RATIO,
        account_of,
        found_at,
        location_of,
        of_the_run,
    )

    if share.least_ratio < SURE_RATIO:
        yield Small(share.least_ratio, SURE_RATIO, "the run")
        return
    total_ns, at = account_of(trace).total_ns, location_of(place)
    what = place.inside if place.inside and place.inside_ratio >= 0.5 else place.call
    fix, hint = _FIX[way]
    yield found_at(
        trace,
        (place, share),
        f"{of_the_run(share.ns, total_ns)} passes {_DOING[way]}"
        + (f" in {at}" if at else "")
        + (f", at {what}" if what else ""),
        fix=fix,
        hint=hint,
        confidence="medium" if way is Way.WAIT else "high",
        more=_children(trace) if way is Way.PROCESS else (),
    )


_DOING = {way: way.label for way in WAITS} | {Way.WAIT: "waiting"}


def _children(trace: Trace) -> Iterator[Evidence]:
    """What the programs that were waited for computed themselves."""
    samples = trace.run.samples if trace.run else None
    usage = samples.usage if samples else None
    if usage is not None and usage.children_ns is not None:
        yield Evidence("its child processes on cores", usage.children_ns, "ns")
