"""A compiled program stops in each step to call a Python function on the host.

## What it looks for
The programs that XLA compiled, which a recording of JAX holds (`.xplane.pb`), and in them the
operations that call Python: `jax.pure_callback`, `jax.experimental.io_callback`,
`jax.debug.callback`, `jax.debug.print`. Counted is the time from where such an operation begins to
where it ends: copies of its arguments to the host, the function, copies of its results back.

## Why it matters
The device has nothing to do meanwhile: what comes next in the program waits for the function, which
runs in Python, under its lock, for one call after the other.

## How to fix it
Write it with operations of JAX, or call it outside of what is compiled, on what the program returns
(a metric, a log line: every hundred steps). `jax.debug.callback` in a condition
(`jax.lax.cond(step % 100 == 0, ...)`) is called only then.

## When to ignore it
Where the function has no counterpart on the device, as a simulator has none.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.steps.in_steps import judged_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.regex import regex
from pinchpoint.trace import Table, Trace
from pinchpoint.trace.arrays import Ints
from pinchpoint.trace.durations import duration
from pinchpoint.trace.intervals import flatten
from pinchpoint.trace.kinds import HOST_CALLBACK

RULE = Rule(
    needs=("host_ops",),
    record=Record("the .xplane.pb that jax.profiler writes, which holds the compiled programs"),
)

LEAST_RATIO = 0.03  # of the step, as of all causes
# A judgement: what the function makes has to be made some other way, at a cost that is not known.
LEAST_WON_RATIO = 0.1
_PLACE = regex(r"(?P<file>[^,\n]+):(?P<line>\d{1,7})(,|$)")


def check(trace: Trace) -> Iterator[Found | Small]:
    """Callbacks of compiled programs, all together."""
    compiled, typical_ns = trace.compiled_ops, steps(trace).typical_ns
    if compiled is None or not len(judged_steps(trace)) or not typical_ns:
        return
    numbers = [n for n, name in enumerate(trace.names) if name == HOST_CALLBACK]
    mine = np.isin(compiled.filled("category", -1), numbers)
    step = judged_steps(trace).step_of(compiled["start_ns"])
    mine &= step >= 0
    if not mine.any():
        return
    begins, ends, row = _calls(compiled, np.flatnonzero(mine), step)
    ns = round(per_step(trace, flatten(begins, ends).total))
    if ns < LEAST_RATIO * typical_ns:
        yield Small(ns / typical_ns, LEAST_RATIO)
        return
    count = per_step(trace, len(begins))
    longest = int(row[(ends - begins).argmax()])
    took = np.bincount(compiled.filled("source", -1)[row] + 1, ends - begins)
    place = _PLACE.match(trace.names[int(took.argmax()) - 1]) if took.argmax() else None
    at = Location(place["file"], int(place["line"])) if place else None
    yield Found(
        summary=(
            f"The compiled program calls Python back on the host {count:.3g} × a step"
            + (f", for {at}" if at else "")
            + f": {duration(ns)} of each recorded step, in which what comes next in it waits"
        ),
        evidence=(
            Evidence("callbacks", ns, "ns per step"),
            Evidence("calls", round(count, 2), "per step"),
            Evidence(
                "longest",
                int((ends - begins).max()),
                "ns",
                int(begins[(ends - begins).argmax()]),
                trace.text(compiled, "op", longest),
            ),
        ),
        cost_ns_per_step=ns,
        saving_ns_per_step=(round(LEAST_WON_RATIO * ns), ns),
        location=at,
        fix=(
            "Compute it with operations of JAX, or on what the program returns, and not in each"
            " step"
        ),
        hint="if step % 100 == 0: log(jax.device_get(metrics))  # outside of jit",
        confidence="medium",
    )


def _calls(compiled: Table, rows: Ints, step: Ints) -> tuple[Ints, Ints, Ints]:
    """Where each call begins and ends, and its first row: its copies follow each other on a device,
    in one step, and on the host it is one row."""
    device, op = compiled.filled("device", -1)[rows], compiled["op"][rows]
    order = np.lexsort((compiled["start_ns"][rows], device))
    rows, device, op = rows[order], device[order], op[order]
    follows = (device[1:] == device[:-1]) & (op[1:] == op[:-1]) & (device[1:] >= 0)
    # Of the same call only if no other operation of its device ran between.
    on = np.flatnonzero(compiled.known("device"))
    turn = np.zeros(len(compiled), np.int64)
    turn[on[np.lexsort((compiled["start_ns"][on], compiled["device"][on]))]] = np.arange(len(on))
    follows &= (turn[rows[1:]] == turn[rows[:-1]] + 1) & (step[rows[1:]] == step[rows[:-1]])
    first = np.flatnonzero(np.append(True, ~follows))
    last = np.append(first[1:], len(rows)) - 1
    return compiled["start_ns"][rows[first]], compiled.end_ns[rows[last]], rows[first]
