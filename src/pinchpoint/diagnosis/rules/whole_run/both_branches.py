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
Ask once for all rows: `lax.cond(over.any(), renew_all, keep_all)` outside of `vmap`, with the
choice among rows inside `renew_all`. Or make the branch cheap, and do the work elsewhere for those
rows alone. How much is won depends on how often any row needs it: the range is from a tenth of the
branches' time to all of it.

## When to ignore it
Where in nearly every step some row needs the branch.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pinchpoint.analysis.device.compiled import compiled_rows
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.tables.compiled_programs import compiled_lines
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=Record("a whole run: pinchpoint run python train.py"),
)

LEAST_RATIO = 0.05  # of the step: a choice among small results costs less than asking
LEAST_WON_RATIO = 0.1  # a judgement: how often the branch is needed is not known


def check(trace: Trace) -> Iterator[Found]:
    """The condition whose branches take most."""
    typical_ns = steps(trace).typical_ns
    if not typical_ns:
        return
    most = max((*_told(trace), *_compiled(trace)), key=lambda one: one.ns, default=None)
    if most is None or most.ns < LEAST_RATIO * typical_ns:
        return
    ns = most.ns
    yield Found(
        summary=(
            f"The condition in {most.at} is under vmap, so its branches are computed for every row"
            f" and step, and one result is thrown away: {duration(ns)} of each recorded step"
        ),
        evidence=(Evidence("compiled operations of its branches", ns, "ns per step"), most.counted),
        cost_ns_per_step=ns,
        saving_ns_per_step=(round(LEAST_WON_RATIO * ns), ns),
        leaves_ns_per_step=_leaves_ns(trace, ns),
        location=most.at,
        fix="Ask once for all rows whether any needs the branch, outside of vmap",
        hint="rows = jax.lax.cond(over.any(), renew_all, lambda rows: rows, rows)",
        confidence="medium",
    )


class _Condition(NamedTuple):
    at: Location
    ns: int  # a step, of its branches
    counted: Evidence


def _told(trace: Trace) -> Iterator[_Condition]:
    """As JAX told the run: by the lines of their branches."""
    took = compiled_lines(trace)
    for one in trace.run.both_branches if trace.run else ():
        ns = sum(took.get(line, 0) for line in set(one.lines))
        counted = Evidence("lines of its branches", len(one.lines), "count")
        yield _Condition(Location(*one.place), ns, counted)


def _compiled(trace: Trace) -> Iterator[_Condition]:
    """As the compiled programs tell: by what only one side of the choice reads."""
    ops, compiled = trace.device_ops, trace.compiled_ops
    if ops is None or compiled is None or not compiled.known("chosen_at").any():
        return
    row = compiled_rows(trace)
    inside = (row >= 0) & device_ops_in_steps(trace)
    row = row[inside]
    at, side = compiled.filled("chosen_at", -1)[row], compiled.filled("chosen_side", 0)[row]
    took = ops["duration_ns"][inside]
    for number in np.unique(at[at >= 0]).tolist():
        mine = [(at == number) & (side == which) for which in (1, 2)]
        heavier = max(mine, key=lambda rows: int(took[rows].sum()))
        file, _, line = trace.names[number].rpartition(":")
        count = round(per_step(trace, int(heavier.sum())), 1)
        yield _Condition(
            Location(file, int(line)) if line.isdigit() else Location(file=trace.names[number]),
            round(per_step(trace, int(took[heavier].sum()))),
            Evidence("operations that only one side of it reads", count, "per step"),
        )


def _leaves_ns(trace: Trace, ns: int) -> int | None:
    """The work of a device beside the branches; None where none is at work."""
    ops = trace.device_ops
    if ops is None or not len(ops):
        return None
    busy = float(ops["duration_ns"][device_ops_in_steps(trace)].sum())
    return max(round(per_step(trace, busy)) - ns, 0)
