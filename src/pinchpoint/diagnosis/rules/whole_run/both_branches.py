"""A condition under `jax.vmap` computes both of its branches for every row.

## What it looks for
A `jax.lax.cond` or `switch` whose predicate differs from row to row under `jax.vmap`, as
`pinchpoint run` hears it from JAX; and the time of the compiled operations that come
from the lines of its branches. It is no cause where they take little of the step.

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

from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.tables.compiled_programs import compiled_lines
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import BothBranches, Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=Record("a whole run: pinchpoint run python train.py"),
)

LEAST_RATIO = 0.05  # of the step: a choice among small results costs less than asking
LEAST_WON_RATIO = 0.1  # a judgement: how often the branch is needed is not known


def check(trace: Trace) -> Iterator[Found]:
    """The condition whose branches take most."""
    conditions = trace.run.both_branches if trace.run else ()
    typical_ns = steps(trace).typical_ns
    if not conditions or not typical_ns:
        return
    took = [(_ns_per_step(trace, one), one) for one in conditions]
    ns, condition = max(took, key=lambda pair: pair[0])
    if ns < LEAST_RATIO * typical_ns:
        return
    at = Location(*condition.place)
    yield Found(
        summary=(
            f"The condition in {at} is under vmap, so its branches are computed for every row and"
            f" step, and one result is thrown away: {duration(ns)} of each recorded step"
        ),
        evidence=(
            Evidence("compiled operations of its branches", ns, "ns per step"),
            Evidence("lines of its branches", len(condition.lines), "count"),
        ),
        cost_ns_per_step=ns,
        saving_ns_per_step=(round(LEAST_WON_RATIO * ns), ns),
        leaves_ns_per_step=_leaves_ns(trace, ns),
        location=at,
        fix="Ask once for all rows whether any needs the branch, outside of vmap",
        hint="rows = jax.lax.cond(over.any(), renew_all, lambda rows: rows, rows)",
        confidence="medium",
    )


def _leaves_ns(trace: Trace, ns: int) -> int | None:
    """The work of a device beside the branches; None where none is at work."""
    ops = trace.device_ops
    if ops is None or not len(ops):
        return None
    busy = float(ops["duration_ns"][device_ops_in_steps(trace)].sum())
    return max(round(per_step(trace, busy)) - ns, 0)


def _ns_per_step(trace: Trace, condition: BothBranches) -> int:
    lines = set(condition.lines)
    return sum(ns for line, ns in compiled_lines(trace).items() if line in lines)
