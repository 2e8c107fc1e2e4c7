"""A large part of the run goes into importing modules.

## What it looks for
Looks at the main thread of a run at which it was importing, and no function of the program was
running: at least a third of the run with 95 % confidence.

## Why it matters
A program that is started again and again pays for its imports each time.

## How to fix it
Import what is heavy where it is used (`python -X importtime train.py` shows which are); start the
program once for many inputs; keep packages on a local disk.

## When to ignore it
A short trial of a program that otherwise runs for hours.
"""

from collections import Counter
from collections.abc import Iterator

from pinchpoint.analysis.host.frames import Owner, PythonFrame, frame_of
from pinchpoint.analysis.mean.ways import imports
from pinchpoint.analysis.mean.whole_run import NS_PER_US, main_spent, share
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import Trace

RULE = Rule(
    needs=(),
    record=Record("a whole run: pinchpoint run python train.py"),
    looks_at="run alone",
)

LEAST_RATIO = 1 / 3  # of the run, surely
LEAST_NS = 2_000_000_000  # what a program of some size takes on any machine is no cause


def check(trace: Trace) -> Iterator[Found | Small]:
    """The imports of a run, at the program's line with most of them."""
    samples = trace.run.samples if trace.run else None
    if samples is None:
        return
    spent = main_spent(samples)
    of_them = [one for one in spent if imports(one.frames)]
    us, whole = sum(one.us for one in of_them), sum(one.us for one in spent)
    took = share(us, spent, whole * NS_PER_US, sum(one.looks for one in of_them))
    if took.ns < LEAST_NS:
        return
    if took.least_ratio < LEAST_RATIO:
        yield Small(took.least_ratio, LEAST_RATIO, "the run")
        return
    at: Counter[PythonFrame] = Counter()
    for one in of_them:
        own = [f for name in one.frames if (f := frame_of(name)) and f.owner is Owner.USER]
        if own:
            at[own[0]] += one.us
    place, place_us = next(iter(at.most_common(1)), (None, 0))
    where = None if place is None else Location(place.file, place.line, place.function)
    from pinchpoint.diagnosis.evidence.run_places import (
        account_of,
        at_most,
        of_the_run,
        share_evidence,
    )

    total_ns = account_of(trace).total_ns
    yield Found(
        summary=f"{of_the_run(took.ns, total_ns)} goes into importing modules"
        + (f", most at {where}" if where else ""),
        evidence=(
            *share_evidence(took),
            *((Evidence(f"at {where}", NS_PER_US * place_us, "ns"),) if where else ()),
        ),
        cost_ns_per_step=took.ns,
        location=where,
        fix="Import what is heavy only where it is used, or start the program once for many inputs",
        hint="python -X importtime train.py",
        consequence=at_most(took, total_ns),
        run_ratio=took.ns / max(total_ns, 1),
    )
