"""A Python loop goes over the same tensors again and again, and only a number differs.

## What it looks for
One call of a function that runs the same elementwise and reducing operators a dozen times and more,
on tensors of the same sizes, while a scalar argument of at least one of them is another one in each
turn: a loop over classes, labels, thresholds. What one pass over the tensors needs, with the
arithmetic of all turns, has to be a third of what the loop takes on the device or less. A loop in
which nothing differs may depend on its own results, and is not meant. Shapes, values of arguments
and Python functions have to be recorded.

## Why it matters
Each turn launches its kernels and reads everything once more. The time grows with the number of
classes, though each element belongs to one of them.

## How to fix it
One call for all turns: count with `torch.bincount` or `scatter_add_`, compare with a broadcast
range in one compiled function, or sort once.

## When to ignore it
Where a turn needs the result of the one before it.
"""

from collections.abc import Iterator

from pinchpoint.analysis.causal.passes import FEWEST_TURNS, Row
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.diagnosis.evidence.functions import far_functions
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES_AND_STACKS
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops", "host_ops"),
    record=SHAPES_AND_STACKS,
    parent="unfused-pointwise",
    advice=NO_HINT,
)


def check(trace: Trace) -> Iterator[Found]:
    """Functions with such loops, most device time first."""
    for one in far_functions(trace, _is_a_loop):
        longest = max(one.rows, key=lambda row: row.turns)
        launches = per_step(trace, sum(len(row.rows) for row in one.rows))
        yield Found(
            summary=(
                f"{one.name} goes over the same tensors {longest.turns} times in a Python loop,"
                f" {longest.turn_operators} operators a turn in which only a number differs:"
                f" {launches:.0f} launches and {duration(one.work.ns_per_step)} of the device in"
                " each step"
            ),
            evidence=(
                Evidence("turns of the loop", longest.turns, "count"),
                Evidence("operators in each", longest.turn_operators, "count"),
                *one.evidence,
            ),
            cost_ns_per_step=one.work.ns_per_step,
            changes=one.changes,
            location=one.work.place,
            fix="Do all turns in one call: count or scatter by label, or compare with a range",
            hint="torch.bincount(label * classes + prediction, minlength=classes**2)",
            confidence="medium",
        )


def _is_a_loop(row: Row) -> bool:
    return row.turns >= FEWEST_TURNS
