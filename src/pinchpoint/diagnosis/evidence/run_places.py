"""Findings about places of a whole run, as looks at its threads tell them: bounds, never promises.

A place that takes a share of the run is worth at most that share: what a change leaves of it, and
what takes its place, no look tells.
"""

from collections.abc import Iterable
from typing import Literal

from msgspec import structs

from pinchpoint.analysis.mean.whole_run import RunAccount, RunPlace, Share, run_account
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.rule import ANY_PROGRAM
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import in_unit, time_unit

ONE_SECOND_NS = 1_000_000_000  # from which on seconds are what people count a run in
SURE_RATIO = 0.1  # of the run, at least, with 95 % confidence: less is no reason to begin there


def account_of(trace: Trace) -> RunAccount:
    """The account of a run that was looked at; without looks it has nothing in it."""
    return run_account(trace) or RunAccount(0, 0, {}, ())


def location_of(place: RunPlace) -> Location | None:
    """The line of the program."""
    at = place.at
    return None if at is None else Location(file=at.file, line=at.line, function=at.function)


def at_most(share: Share, total_ns: int) -> str:
    """``at most 12.1 of 20.3 s``: what is won where the place takes no time."""
    unit = run_unit(total_ns)
    return f"at most {in_unit(share.ns, unit)} of {in_unit(total_ns, unit)} {unit}"


def found_at(
    trace: Trace,
    of: tuple[RunPlace, Share],
    summary: str,
    *,
    fix: str,
    hint: str | None = None,
    confidence: Literal["high", "medium", "low"] = "medium",
    more: Iterable[Evidence] = (),
) -> Found:
    """A finding about a place, with its share and how sure that is."""
    (place, share), total_ns = of, account_of(trace).total_ns
    return Found(
        summary=summary,
        evidence=(*share_evidence(share), *more, *_ways(place)),
        cost_ns_per_step=share.ns,
        location=location_of(place),
        fix=fix,
        hint=hint,
        confirm=ANY_PROGRAM,
        consequence=at_most(share, total_ns),
        confidence=confidence,
        run_ratio=share.ns / max(total_ns, 1),
    )


def in_the_run(trace: Trace, found: Found, ns: int) -> Found:
    """A finding about steps, as one about the run that they are most of."""
    total_ns = account_of(trace).total_ns
    return structs.replace(
        found,
        cost_ns_per_step=ns,
        saving_ns_per_step=None,
        consequence=f"at most {of_run(ns, total_ns)}",
        run_ratio=ns / max(total_ns, 1),
    )


def share_evidence(share: Share) -> tuple[Evidence, ...]:
    """How much, how sure, and from how many looks."""
    return (
        Evidence("of the run, by looks", share.ns, "ns"),
        Evidence("at least, 95 % sure", share.range_ns[0], "ns"),
        Evidence("at most", share.range_ns[1], "ns"),
        Evidence("looks that saw it", share.looks, "count"),
    )


def _ways(place: RunPlace) -> tuple[Evidence, ...]:
    whole = max(sum(place.ways.values()), 1)
    return tuple(
        Evidence(f"there: {way.label}", ns, "ns")
        for way, ns in sorted(place.ways.items(), key=lambda one: -one[1])
        if ns >= 0.05 * whole
    )


def run_unit(total_ns: int) -> str:
    """The unit of a run: seconds from one on, where steps are said in milliseconds until ten."""
    return "s" if total_ns >= ONE_SECOND_NS else time_unit(total_ns)


def in_run(ns: float, total_ns: int) -> str:
    """A part of a run in the unit of the whole: ``3.34 s``."""
    unit = run_unit(total_ns)
    return f"{in_unit(ns, unit)} {unit}"


def of_run(ns: float, total_ns: int) -> str:
    """``3.34 s of the run's 50.7 s``."""
    return f"{in_run(ns, total_ns)} of the run's {in_run(total_ns, total_ns)}"


def of_the_run(share_ns: int, total_ns: int) -> str:
    """``95 % of the run's 20.3 s``."""
    return f"{100 * share_ns / max(total_ns, 1):.0f} % of the run's {in_run(total_ns, total_ns)}"
