"""A condition under `jax.vmap` computes both of its branches for every row.

## What it looks for
A `jax.lax.cond` or `switch` whose predicate differs from row to row under `jax.vmap`, as
`pinchpoint run` hears it from JAX, and the time of the compiled operations that come
from the lines of its branches; and, where the recording holds the compiled program, a `select` in
`vmap` itself (`jnp.where` has a function of its own around it) by one value a row, and the time of
what nothing but one side of it reads. It is no cause where they take little of the step.

## Why it matters
One program computes all rows at once, so `vmap` makes of the condition a choice among the results
of all branches (`select`). A branch that is meant for a few rows, a reset, a refill, is computed
for all of them in each step, and its result thrown away.

## How to fix it
Do the work elsewhere, for as many rows as need it: a pool of new states that is made once before
the loop, and of which a row that is over takes one. Or make the branch cheap. Asking once for all
rows (`lax.cond(over.any(), renew_all, keep_all)` outside of `vmap`, with the choice among rows
inside `renew_all`) wins where in most turns no row needs it, which with thousands of rows is rare.

How much is won depends on how often a row needs the branch, which no recording tells: all of it
where rows hardly ever do, nothing where all of them do in each turn. What is said in the middle
goes by an assumption that stands beside it: where one side of the choice costs nothing (the row
stays what it is) and the choice is made in each turn of a loop, each row needs the other side once
in these turns, for what was replaced more often would not be worth carrying; where
both sides are work, half of the rows need either; elsewhere, one in ten, as what is behind a
condition is mostly an exception: in the five programs whose fix was measured 0.91 of the branches'
time was won, and up to all of it. The range is from a tenth of
their time to all of it with their share of the pauses between operations.

## When to ignore it
Where in nearly every step each row needs the branch.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pinchpoint.analysis.replay import DropDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.tables.compiled_programs import compiled_lines
from pinchpoint.analysis.time.accounting import breakdown
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis.evidence.one_side import one_sides
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=Record("a whole run: pinchpoint run python train.py"),
)

LEAST_RATIO = 0.05  # of the step: a choice among small results costs less than asking
NO_ROWS: Rows = np.zeros(0, np.intp)
LEAST_WON_RATIO = 0.1  # a judgement: how often the branch is needed is not known
# What is behind a condition is an exception: five fixes in four sets of programs won 0.91 to 1.08
# of the branches' time, so that leaving any set out leaves the same.
NEEDED_RATIO = 0.1
HALF_RATIO = 0.5  # of the rows, where nothing says which of two sides is the exception


def check(trace: Trace) -> Iterator[Found | Small]:
    """The condition whose branches take most."""
    typical_ns = steps(trace).typical_ns
    if not typical_ns:
        return
    most = max((*_told(trace), *_compiled(trace)), key=lambda one: one.ns, default=None)
    if most is None:
        return
    if most.ns < LEAST_RATIO * typical_ns:
        yield Small(most.ns / typical_ns, LEAST_RATIO)
        return
    ns, turns = most.ns, most.turns
    often = "in every other turn" if most.both_work else "in one turn of ten"
    each = f"once in the {turns} turns of the loop around it" if turns else often
    needed_ratio = 1 / turns if turns else HALF_RATIO if most.both_work else NEEDED_RATIO
    yield Found(
        summary=(
            f"The condition in {most.at} is under vmap, so its branches are computed for every row"
            f" and step, and one result is thrown away: {duration(ns)} of each recorded step; said"
            f" is what is won if each row needs it {each}"
        ),
        evidence=(Evidence("compiled operations of its branches", ns, "ns per step"), most.counted),
        cost_ns_per_step=ns,
        saving_ns_per_step=(
            round(LEAST_WON_RATIO * ns),
            max(ns, most.fair_ns) + _pauses_ns(trace, most.work_ns),
        ),
        likely_saving_ns=round((1 - needed_ratio) * ns),
        leaves_ns_per_step=_leaves_ns(trace, most.work_ns),
        at_best=(DropDeviceOps(most.rows),) if len(most.rows) else (),
        location=most.at,
        fix=(
            "Compute it elsewhere for as many rows as need it, and take from these; or ask once for"
            " all rows, outside of vmap, where in most turns none needs it"
        ),
        hint="fresh = pool[jax.random.randint(key, (), 0, len(pool))]  # made before the loop",
        confidence="medium",
    )


class _Condition(NamedTuple):
    at: Location
    ns: int  # a step, of its branches
    work_ns: int  # of that the device's work
    counted: Evidence
    turns: int | None = None  # of the loop around it, of which one needs the branch
    rows: Rows = NO_ROWS  # of device_ops
    both_work: bool = False  # neither side costs nothing
    fair_ns: int = 0  # of programs on a CPU: what they are if pauses fall on all alike


def _told(trace: Trace) -> Iterator[_Condition]:
    """As JAX told the run: by the lines of their branches."""
    took = compiled_lines(trace)
    for one in trace.run.both_branches if trace.run else ():
        ns = sum(took.get(line, 0) for line in set(one.lines))
        counted = Evidence("lines of its branches", len(one.lines), "count")
        yield _Condition(Location(*one.place), ns, ns, counted)


def _compiled(trace: Trace) -> Iterator[_Condition]:
    """As the compiled programs tell: by what only one side of the choice reads."""
    for one in one_sides(trace):
        count = round(per_step(trace, len(one.rows)), 1)
        is_free = one.other_ns < LEAST_RATIO * one.work_ns
        yield _Condition(
            _place(trace, one.at),
            one.work_ns + one.idle_ns,
            one.work_ns,
            Evidence("operations that only one side of it reads", count, "per step"),
            one.turns if is_free else None,
            one.rows,
            both_work=not is_free,
            fair_ns=one.fair_ns,
        )


def _place(trace: Trace, at: str) -> Location:
    """As JAX told the run, with the function, where that is the same line."""
    for one in trace.run.both_branches if trace.run else ():
        if f"/{at}".endswith(f"/{one.place[0]}:{one.place[1]}"):
            return Location(*one.place)
    file, _, line = at.rpartition(":")
    return Location(file, int(line)) if line.isdigit() else Location(file=at)


def _pauses_ns(trace: Trace, ns: int) -> int:
    """Of the pauses between operations of a device, those that its share of the work has: where no
    row ever needs the branch, they go with it."""
    parts = breakdown(trace)
    work_ns = parts.of_group("device") + parts.of_group("exposed")
    paused_ns = parts.of_part(GapKind.START_LATENCY.id)
    return round(paused_ns * min(ns / work_ns, 1.0)) if work_ns else 0


def _leaves_ns(trace: Trace, ns: int) -> int | None:
    """The work of a device beside the branches; None where none is at work."""
    ops = trace.device_ops
    if ops is None or not len(ops):
        return None
    busy = float(ops["duration_ns"][device_ops_in_steps(trace)].sum())
    return max(round(per_step(trace, busy)) - ns, 0)
