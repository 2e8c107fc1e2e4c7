"""One function of the program keeps the interpreter busy for a large part of the run.

## What it looks for
Looks at the main thread of a run of which nothing else was recorded: a function in which it was on
a core and held the interpreter's lock, for at least a quarter of the run with 95 % confidence. What
it does there is told by the instruction it was at: one call most of the time (a regular expression,
a sort, a conversion in a library), or many (a loop that the interpreter runs). Where the program's
threads or worker processes do the work while the main thread waits for them, they are looked at.

## Why it matters
Python runs some ten million simple instructions a second, a library that works on whole arrays a
hundred times as many. What happens once for each element is most of many slow runs.

## How to fix it
Do it less often, once, or for all elements at once with a library that works on arrays; keep what
does not change; compile it. Whether the work is needed, no look tells.

## When to ignore it
Where that function is the purpose of the program, and written as it should be.
"""

from collections.abc import Iterator

import msgspec

from pinchpoint.analysis.mean.ways import Way
from pinchpoint.analysis.mean.whole_run import BEFORE_CALL_RATIOS, MOSTLY_RATIO, RunPlace
from pinchpoint.diagnosis.evidence.known_calls import advice_for
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.trace import Trace

RULE = Rule(
    needs=(),
    record=Record("a whole run: pinchpoint run python train.py"),
    looks_at="run alone",
    residual=True,
)

# Of the run, surely. A program that is spread over more places than four has no one place to begin.
LEAST_RATIO = 0.25
NAMED_RATIO = 1 / 3  # a named cause goes first if it wins a third as much, as in the engine


def check(trace: Trace) -> Iterator[Found | Small]:
    """The functions that hold the interpreter most, one of which there may be two."""
    from pinchpoint.analysis.mean.crew import crew

    team = crew(trace)
    from pinchpoint.diagnosis.evidence.run_places import account_of

    places = account_of(trace).places if team is None else team.places
    who = "" if team is None else f" in {team.name}"
    said, undecided = False, None
    for place in places:
        busy = 2 * place.ways.get(Way.INTERPRETER, 0) >= place.doing_ns
        if not busy or place.at is None:
            continue
        sure = place.share.least_ratio
        if sure >= LEAST_RATIO and _gives_the_lock_up(place):
            undecided = undecided or place
            continue
        said |= sure >= LEAST_RATIO
        small = Small(sure, LEAST_RATIO, "the run")
        yield _found(trace, place, who) if sure >= LEAST_RATIO else small
    if undecided is not None and not said:
        from pinchpoint.diagnosis.evidence.run_places import location_of

        raise NotChecked(
            f"most looks at {location_of(undecided)} found it at {undecided.call}, which gives the"
            " interpreter's lock up for much of its time, as libraries of arrays do while they"
            " compute: what of it is needed does not show",
            fits=True,
        )


def _gives_the_lock_up(place: RunPlace) -> bool:
    """Whether it is mostly one call that does not keep the lock, as one of Python's own would: a
    product of arrays, and little around it that keeps it."""
    _, keeps = BEFORE_CALL_RATIOS
    return place.call_ratio >= MOSTLY_RATIO and place.call_held_ratio < keeps


def _found(trace: Trace, place: RunPlace, who: str) -> Found:
    from pinchpoint.diagnosis.evidence.run_places import (
        account_of,
        found_at,
        location_of,
        of_the_run,
    )

    account = account_of(trace)
    at, share = location_of(place), place.share
    how, fix, hint = _how(place)
    found = found_at(
        trace,
        (place, share),
        f"{of_the_run(share.ns, account.total_ns)} passes in {at}{who}: {how}",
        fix=fix,
        hint=hint,
        confidence="low",
        more=(
            Evidence("lines of it that were seen", place.lines, "count"),
            *_named("mostly at", place.call, place.call_ratio),
            *_named("mostly inside", place.inside or "", place.inside_ratio),
        ),
    )
    return msgspec.structs.replace(found, run_ratio=NAMED_RATIO * (found.run_ratio or 0.0))


def _named(what: str, name: str, ratio: float) -> Iterator[Evidence]:
    if name:
        yield Evidence(f"{what} {name}", ratio, "ratio")


def _how(place: RunPlace) -> tuple[str, str, str | None]:
    """What it does there, what to do about it, and code that shows that."""
    if place.inside and place.inside_ratio >= 0.5:
        return (
            f"{100 * place.inside_ratio:.0f} % of that inside {place.inside}",
            f"Call {place.inside} less often, or not where its result is not used",
            None,
        )
    if place.call and place.call_ratio >= MOSTLY_RATIO:
        return (
            f"{100 * place.call_ratio:.0f} % of that at {place.call}, which keeps the lock",
            f"See what {place.call} does with its input there: do it once, less often, or in a way"
            f" whose work grows less with the input{advice_for(place.call)}",
            None,
        )
    return (
        "Python runs it instruction by instruction",
        "Work on whole arrays there, keep what does not change, or compile the loop",
        "total = values.sum()  # in place of a loop over the values",
    )
