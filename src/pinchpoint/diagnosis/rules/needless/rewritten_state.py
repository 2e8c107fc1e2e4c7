"""A compiled loop writes a large array anew in each step, of which it changes a small part.

## What it looks for
Loops of programs that XLA compiled, which a recording of JAX holds (`.xplane.pb`): an array that
the loop takes slice by slice (`xs` of `jax.lax.scan`) and whose slices it writes, changed at half
or less of them, into another array at the same places (`ys`), or back into the one that it carries
(`cache.at[layer].set(changed)`). With them go what fills that other array before the loop and what
copies it afterwards to where the first one was. A slice that is computed anew as a whole, rolled,
or put elsewhere is no such case, nor is a loop that carries one array and writes only what is new
into it.

## Why it matters
A decoder that scans over its layers and gives the cache back as `ys` reads and writes the complete
cache for each token, several times, to add one position to it. The device is fully at work, and
all of that is memory traffic that nothing needs.

## How to fix it
Keep the cache as one array for each layer, loop over the layers in Python, update each one with
`jax.lax.dynamic_update_slice` and donate all of them to the compiled function (`donate_argnums`).
Or let the scan carry the whole array and update it there at layer and position: then each slice may
still be copied once a step, where what reads it cannot read it in the middle of a larger array.

## When to ignore it
Where the old values are read after the loop.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.device.compiled import compiled_rows
from pinchpoint.diagnosis.evidence.compiled_work import (
    compiled_work,
    left_of,
    needing,
    place_told,
)
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NotChecked, Rule
from pinchpoint.trace import Table, Trace
from pinchpoint.trace.arrays import Mask, Rows
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops",),
    record=Record("the .xplane.pb that jax.profiler writes, which holds the compiled programs"),
    confirm=ANY_PROGRAM,
)

_FIX = (
    "Do not hand it to the loop in slices and take them back: keep one array for each turn of the"
    " loop, written out in Python, change each in place and donate them"
)
_OR_CARRY = (
    ", or let the loop carry the array and write only what is new into it, which still copies each"
    " slice once"
)
_HINT = "k[layer] = jax.lax.dynamic_update_slice(k[layer], new, (0, 0, position, 0))"


def check(trace: Trace) -> Iterator[Found]:
    """The loops that write most anew."""
    ops, compiled = trace.device_ops, trace.compiled_ops
    if ops is None or compiled is None or not len(compiled):
        return
    if not (compiled.known("flops") | compiled.known("bytes")).any():
        raise NotChecked("the compiled programs are not in this recording")
    row = compiled_rows(trace)
    anew = (row >= 0) & compiled.known("changed_ratio")[row]
    at = np.where(anew, compiled.filled("rewritten_at", len(trace.names))[row], -1)
    took = np.bincount(at[at >= 0], ops["duration_ns"][at >= 0])
    for place in np.flatnonzero(took).tolist():
        found = _found(trace, compiled, row, at == place)
        if found is not None:
            yield found


def _found(trace: Trace, compiled: Table, row: Rows, mine: Mask) -> Found | None:
    work = compiled_work(trace, mine)
    if work is None:
        return None
    counted = row[work.rows]
    changed, carried = compiled["changed_ratio"][counted], compiled["carried_ratio"][counted]
    put_back = compiled.filled("put_back_bytes", 0)[counted] / work.steps
    location = place_told(trace.text(compiled, "rewritten_at", int(counted[0])))
    written, new = float(put_back.sum()), float((changed * put_back).sum())
    return Found(
        summary=(
            f"The loop at {location.short if location else 'a place that is not known'} writes an"
            f" array back slice by slice, {_size(written)} a step of which {_size(new)} change:"
            f" {duration(work.ns_per_step)} of each recorded step in {work.count:.0f} operations"
        ),
        evidence=(
            Evidence("operations that write it anew", work.ns_per_step, "ns per step"),
            Evidence("operations", round(work.count, 2), "per step"),
            Evidence("written back", round(written), "bytes per step"),
            Evidence("changed of it", round(new), "bytes per step"),
            Evidence("of this work that is needed", round(left_of(work, changed), 6), "ratio"),
        ),
        cost_ns_per_step=work.ns_per_step,
        location=location,
        fix=_FIX + (_OR_CARRY if (changed < carried).any() else ""),
        hint=_HINT,
        confidence="high",
        **needing(trace, work, carried, changed),
    )


def _size(of_bytes: float) -> str:
    """``8.59 GB``."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if of_bytes >= size:
            return f"{of_bytes / size:.3g} {unit}"
    return f"{of_bytes:.0f} bytes"
