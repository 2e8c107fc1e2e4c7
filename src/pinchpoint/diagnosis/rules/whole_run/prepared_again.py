"""A library prepares the same work again and again, because it keeps too little of it.

## What it looks for
Looks at the main thread of a run of which nothing else was recorded: calls that only prepare, as
the making of an FFT's plan, for at least a tenth of the run with 95 % confidence, and for so long
that there must have been dozens of them. Which calls prepare, and how long one takes at most, is in
the [table](../operators.md); what computes with the result does not count.

## Why it matters
A library keeps what it prepared for a shape, and uses it again in microseconds. It keeps a fixed
number of these, and drops the one that was not used for longest. Where more shapes than that come
in turn, it is always the next one that has just gone, and each call prepares anew.

## How to fix it
Let the library keep as many as come in turn, keep them yourself, or go through all work of one
shape before the next. Where shapes hardly ever come again, pad to a few lengths.

## When to ignore it
A short run that meets each shape once.
"""

from collections import Counter
from collections.abc import Iterator

from pinchpoint.analysis.host.frames import frame_of
from pinchpoint.analysis.mean.stacks import own_frame
from pinchpoint.analysis.mean.whole_run import NS_PER_US, RunPlace, main_spent, share
from pinchpoint.diagnosis.evidence.operators import Preparing, preparing
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.run_samples import Spent

RULE = Rule(
    needs=(),
    record=Record("a whole run: pinchpoint run python train.py"),
    looks_at="run alone",
)

FEWEST_TIMES = 20  # that it must have prepared: what a program does once for each of its shapes


def check(trace: Trace) -> Iterator[Found]:
    """Calls that prepare, of each kind that the table knows."""
    samples = trace.run.samples if trace.run else None
    if samples is None:
        return
    every = main_spent(samples)
    for known in preparing():
        seen = [one for one in every if _prepares(known, one)]
        if seen:
            yield from _found(trace, known, seen, every)


def _prepares(known: Preparing, one: Spent) -> bool:
    frame = frame_of(one.frames[0]) if one.frames else None
    if frame is None or frame.file != known.file:
        return False
    return frame.function in known.functions or one.doing.rpartition(".")[2] in known.calls


def _found(
    trace: Trace, known: Preparing, seen: list[Spent], every: list[Spent]
) -> Iterator[Found]:
    from pinchpoint.diagnosis.evidence.run_places import (
        SURE_RATIO,
        account_of,
        found_at,
        of_the_run,
    )

    us = sum(one.us for one in seen)
    account, times = account_of(trace), us / (1000 * known.longest_ms)
    of_ns = NS_PER_US * sum(one.us for one in every)
    part = share(us, every, of_ns, sum(one.looks for one in seen))
    place = _place(account.places, seen)
    if place is None or part.least_ratio < SURE_RATIO or times < FEWEST_TIMES:
        return
    yield found_at(
        trace,
        (place, part),
        f"{of_the_run(part.ns, account.total_ns)} passes in making {known.what} anew, for calls in"
        f" {place.at.function if place.at else 'the program'}: {known.keeps}",
        fix=known.instead,
        hint=known.hint,
        more=(Evidence("times that it was prepared, at least", int(times), "count"),),
    )


def _place(places: tuple[RunPlace, ...], seen: list[Spent]) -> RunPlace | None:
    """The program's function that most of it is called by."""
    at: Counter[tuple[str, str]] = Counter()
    for one in seen:
        if (frame := own_frame(one.frames)) is not None:
            at[frame.file, frame.function] += one.us
    most = next(iter(at.most_common(1)), ((), 0))[0]
    return next((p for p in places if p.at and (p.at.file, p.at.function) == most), None)
