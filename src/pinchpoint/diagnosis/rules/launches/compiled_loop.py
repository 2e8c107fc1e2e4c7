"""A loop inside a compiled program runs many small operations, and the device waits between them.

## What it looks for
The programs that XLA compiled, which a recording of JAX holds (`.xplane.pb`), and in them loops
(`jax.lax.scan`, `fori_loop`, `while_loop`) that run on the device: at least a hundred operations a
step that take ten microseconds or less each. Counted is what the device stands still between two
operations of one loop. It is no cause where the operations follow each other closely.

## Why it matters
Each iteration launches its operations anew, and each launch takes microseconds, whatever it
computes. A recurrence over a thousand time steps with five kernels in its body is five thousand
launches, and most of the device is unused in each of them.

## How to fix it
Take out of the loop what does not depend on the iteration before: one product of all inputs in
place of one for each time step. `jax.lax.scan(..., unroll=8)` lets XLA fuse several iterations; a
recurrence that is associative is `jax.lax.associative_scan`; a loop over independent rows is
`jax.vmap`. A larger batch fills each operation.

## When to ignore it
Where each iteration needs the one before and is as small as it can be.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.device.compiled import compiled_rows
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.diagnosis.evidence.one_side import LONGEST_GAP_NS
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.regex import regex
from pinchpoint.trace import Table, Trace
from pinchpoint.trace.arrays import Mask, Rows
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops",),
    record=Record("the .xplane.pb that jax.profiler writes, which holds the compiled programs"),
)

FEWEST_OPERATIONS = 100  # a step; a loop over layers has fewer, or longer ones
SMALL_NS = 10_000  # of an operation at the median: about what launching one takes
# A judgement: what cannot be taken out of the loop stays, and unrolling wins only a part.
LEAST_WON_RATIO = 0.1
MOST_TOLD = 2  # loops: the others wait for the next look
_PLACE = regex(r"(?P<file>[^\n]+):(?P<line>\d{1,7})$")


def check(trace: Trace) -> Iterator[Found]:
    """Loops between whose operations the device waits longest."""
    ops, compiled = trace.device_ops, trace.compiled_ops
    if ops is None or compiled is None or not len(compiled):
        return
    if not (compiled.known("flops") | compiled.known("bytes")).any():
        raise NotChecked("the compiled programs are not in this recording")
    row = compiled_rows(trace)
    loop = np.where(row >= 0, compiled.filled("loop", -1)[row], -1)
    inside = device_ops_in_steps(trace)
    found = [
        one
        for place in np.unique(loop[inside & (loop >= 0)]).tolist()
        if (one := _found(trace, ops, loop == place, inside, trace.names[place]))
    ]
    yield from sorted(found, key=lambda one: -(one.cost_ns_per_step or 0))[:MOST_TOLD]


def _found(trace: Trace, ops: Table, mine: Mask, inside: Mask, place: str) -> Found | None:
    rows = np.flatnonzero(mine & inside)
    count = per_step(trace, len(rows))
    if count < FEWEST_OPERATIONS or np.median(ops["duration_ns"][rows]) > SMALL_NS:
        return None
    idle_ns = round(per_step(trace, _between(ops, mine, inside)))
    busy_ns = round(per_step(trace, int(ops["duration_ns"][rows].sum())))
    where = _PLACE.match(place)
    at = Location(where["file"], int(where["line"])) if where else None
    compiled, row = trace.compiled_ops, compiled_rows(trace)[rows[0]]
    assert compiled is not None
    times = int(compiled["iterations"][row]) if compiled.known("iterations")[row] else None
    often = f" of {times} iterations" if times else ""
    return Found(
        summary=(
            f"The loop{often} at {at or place} runs {count:.0f} operations a step,"
            f" {duration(round(busy_ns / count))} each, and between them the device stands still"
            f" for {duration(idle_ns)} of each recorded step"
        ),
        evidence=(
            Evidence("idle between operations of the loop", idle_ns, "ns per step"),
            Evidence("operations of the loop", busy_ns, "ns per step"),
            Evidence("operations", round(count, 2), "per step"),
        ),
        cost_ns_per_step=idle_ns,
        saving_ns_per_step=(round(LEAST_WON_RATIO * idle_ns), idle_ns),
        location=at,
        fix=(
            "Take out of the loop what does not need the iteration before, and let XLA fuse several"
            " iterations of the rest"
        ),
        hint="jax.lax.scan(body, carry, xs, unroll=8)",
        confidence="medium",
    )


def _between(ops: Table, mine: Mask, inside: Mask) -> int:
    """What passes between operations of the loop that follow each other on their device."""
    total = 0
    for device in np.unique(ops["device"][mine]).tolist():
        there: Rows = np.flatnonzero(ops["device"] == device)
        there = there[np.argsort(ops["start_ns"][there], kind="stable")]
        reach = np.maximum.accumulate(ops.end_ns[there])
        gap = np.maximum(ops["start_ns"][there][1:] - reach[:-1], 0)
        both = mine[there][1:] & mine[there][:-1] & inside[there][1:] & inside[there][:-1]
        total += int(gap[both & (gap <= LONGEST_GAP_NS)].sum())
    return total
