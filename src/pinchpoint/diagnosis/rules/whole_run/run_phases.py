"""A large part of the run is outside of its steps, in one function of the program.

## What it looks for
Looks at the main thread before the third step of a run and after its last: a function of the
program that takes at least a quarter of the whole run there, with 95 % confidence; where none does
by itself, the innermost that does with all that it calls, if it is not what calls the steps, too.
Imports, compilation and what recording itself takes are left out, and so are the two first steps
at the length of the others; evaluation between steps shows as exceptional steps.

## Why it matters
However fast the steps become, the run stays as long as what surrounds them: preparing data before,
evaluating and saving after.

## How to fix it
Prepare data once and keep the result; work on whole arrays or in several processes; let the steps
begin while the rest is prepared.

## When to ignore it
A short trial of a program that otherwise trains for days.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import structs

from pinchpoint.analysis.mean.whole_run import RunPlace
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.trace import Trace

if TYPE_CHECKING:
    from pinchpoint.analysis.mean.outside import Phase


RULE = Rule(
    needs=(),
    record=Record("a whole run: pinchpoint run python train.py"),
    looks_at="run",
)

LEAST_RATIO = 0.25  # of the run, surely, at one place
FIRST_RATIO = 0.5  # of the run, outside of the steps: then that is what to look at first


def check(trace: Trace) -> Iterator[Found | Small]:
    """Places outside of the steps, most time first."""
    from pinchpoint.analysis.mean.outside import around, cold_steps_ns, phases
    from pinchpoint.diagnosis.evidence.run_places import account_of

    outside, account = phases(trace), account_of(trace)
    if not outside or not account.total_ns:
        raise NotChecked("the run outside of its steps was not looked at")
    first = sum(phase.ns for phase in outside) >= FIRST_RATIO * account.total_ns
    least_ns = LEAST_RATIO * account.total_ns
    for phase in outside:
        known = [p.less(cold_steps_ns(trace, phase, p)) for p in phase.places if p.at]
        sure = [p for p in known if p.share.range_ns[0] >= least_ns]
        for ns in (p.share.range_ns[0] for p in known if p not in sure):
            yield Small(ns / account.total_ns, LEAST_RATIO, "the run")
        whole = None if sure else around(trace, phase, least_ns)
        for place in sure if whole is None else [whole]:
            yield _found(trace, phase, place, first=first)


def _found(trace: Trace, phase: "Phase", place: RunPlace, *, first: bool) -> Found:
    from pinchpoint.diagnosis.evidence.run_places import account_of, found_at, location_of, of_run

    total_ns = account_of(trace).total_ns
    when = "before its third step" if phase.id == "before" else "after its last step"
    what = place.inside if place.inside and place.inside_ratio >= 0.5 else place.call
    found = found_at(
        trace,
        (place, place.share),
        f"{of_run(place.share.ns, total_ns)} pass {when} in {location_of(place)}"
        + (f", at {what}" if what else ""),
        fix="Prepare it once and keep the result, do it in several processes, or for fewer inputs",
        more=(Evidence(f"the run {when}", phase.ns, "ns"),),
    )
    # Its time is none of a step's.
    ratio = found.run_ratio if first else None
    return structs.replace(found, cost_ns_per_step=None, run_ratio=ratio, beside_steps=True)
