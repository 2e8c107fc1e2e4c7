"""A compiled program computes in each step what rests on arguments that never change.

## What it looks for
The programs that XLA compiled, which a recording of JAX holds (`.xplane.pb`), forwards from their
arguments: operations that rest on nothing but constants and arguments that no program of the
recording gives, that were not given to be changed, and of which JAX held no more arrays of that
type and shape than one call takes (as `pinchpoint run` counts them when a recording ends). Where
arrays were made of NumPy's in the steps (`device_put`, `jnp.asarray`, a NumPy array as an argument)
nothing is said. These operations take a twentieth of the step.

## Why it matters
`jax.jit` keeps programs, no results. A covariance of fixed points and its Cholesky factor, what a
frozen teacher says of a fixed batch, weights that are unpacked, the spectrum of a filter: all of it
is computed anew in each call, though each call is given the same arrays.

## How to fix it
Compute it once before the loop, in a jitted function of its own, and hand the result to the step.
On a device it then takes memory as long as it is held.

## When to ignore it
Where the program gives these arguments other arrays later on, outside of what was recorded.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from pinchpoint.analysis.device.compiled import compiled_rows
from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.on_cpu import compiled_for_cpu
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.compiled_on_cpu import cpu_work, won_on_cpu
from pinchpoint.diagnosis.evidence.compiled_work import compiled_work, needing, place_told
from pinchpoint.diagnosis.evidence.host_spans import named
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NotChecked, Rule
from pinchpoint.trace import DeviceKind, Trace
from pinchpoint.trace.arrays import Floats, Mask, Rows
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=Record("a whole run: pinchpoint run python train.py"),
    confirm=ANY_PROGRAM,
)

LEAST_RATIO = 0.05  # of the step, as of other causes in programs on CPUs
# Of a put: a single number, or a few. Arrays that a call is given are larger.
MOST_PUT_BYTES = 256
_PUTS = ("H2D Dispatch", "DevicePutWithSharding")
_PUT, _CALL, _STAGED = "DevicePut", "PjitFunction(", "PjitFunction(stage)"


def check(trace: Trace) -> Iterator[Found | Small]:
    """All such operations of the program that has most of them."""
    compiled, step_ns = trace.compiled_ops, steps(trace).typical_ns
    if compiled is None or not compiled.known("rests_on").any() or not step_ns:
        return
    if not len(judged_steps(trace)):
        return
    mine = _unchanged(trace)
    if not mine.any():
        return
    module = compiled.filled("module", len(trace.names))
    took = np.bincount(module[mine], compiled["duration_ns"][mine])
    mine &= module == int(took.argmax())
    if compiled_for_cpu(trace):
        on_cpu = cpu_work(trace, compiled, mine)
        if on_cpu is None:
            return
        rows, told, ns, count = on_cpu.rows, on_cpu.took_ns, on_cpu.ns_per_step, on_cpu.count
        won = won_on_cpu(trace, on_cpu)
    else:
        row = compiled_rows(trace)
        work = compiled_work(trace, (row >= 0) & mine[row])
        if work is None:
            return
        rows, ns, count = row[work.rows], work.ns_per_step, work.count
        told = work.took_ns.astype(np.float64)
        nothing = np.zeros(len(rows))
        won = {"cost_ns_per_step": ns, **needing(trace, work, nothing, nothing)}
    if ns < LEAST_RATIO * step_ns:
        yield Small(ns / step_ns, LEAST_RATIO)
        return
    if _puts_arrays(trace) or _puts_arguments(trace, rows):
        raise NotChecked(
            "arrays are put in the steps, and which of them are arguments is not known"
        )
    yield Found(**_said(trace, rows, told, ns, count), **won)


def _unchanged(trace: Trace) -> Mask:
    """Rows of ``compiled_ops`` whose arguments are the only arrays of their type and shape."""
    compiled, held = trace.compiled_ops, trace.run.live_arrays if trace.run else None
    assert compiled is not None
    known = compiled.known("rests_on")
    fixed = []
    for number in np.unique(compiled["rests_on"][known]).tolist():
        arrays = json.loads(trace.names[number])["arrays"]
        if not arrays or (
            held and all(1 <= held.get((t, tuple(sizes)), 0) <= n for t, sizes, n in arrays)
        ):
            fixed.append(number)
    mine: Mask = known & np.isin(compiled.filled("rests_on", -1), fixed)
    return mine


def _puts_arrays(trace: Trace) -> bool:
    """Whether anything but single numbers goes to where programs run, in the judged steps."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    inside = judged_steps(trace).step_of(host["start_ns"]) >= 0
    if (named(trace, _PUTS.__contains__) & inside).any():
        return True
    if ops is None or not len(ops):
        return False
    copies = (ops["kind"] == DeviceKind.COPY) & (ops.filled("bytes", 0) > MOST_PUT_BYTES)
    return bool((copies & _from_host(trace)).any())


def _puts_arguments(trace: Trace, rows: Rows) -> bool:
    """Whether calls of the program put more than its single numbers: small arrays are put at once.

    ``jnp.asarray`` puts in a function of JAX's own; what other compiled functions are given is what
    they give arrays of.
    """
    host, compiled = trace.host_ops, trace.compiled_ops
    assert host is not None
    assert compiled is not None
    own = f"{_CALL}{(trace.text(compiled, 'module', int(rows[0])) or '').removeprefix('jit_')})"
    calls = named(trace, lambda name: name.startswith(_CALL))
    inside = judged_steps(trace).step_of(host["start_ns"]) >= 0
    puts = np.flatnonzero(named(trace, _PUT.__eq__) & inside)
    around = nearest(parents(host), calls)[puts]
    names = [trace.names[host["name"][row]] if row < len(host) else own for row in around.tolist()]
    mine = sum(name in (own, _STAGED) for name in names)
    singles = json.loads(trace.text(compiled, "rests_on", int(rows[0])) or "{}")["numbers"]
    return bool(mine > singles * np.count_nonzero(named(trace, own.__eq__) & inside))


def _from_host(trace: Trace) -> Mask:
    ops = trace.device_ops
    assert ops is not None
    to_device = np.array(["h2d" in name.lower() or "htod" in name.lower() for name in trace.names])
    found: Mask = to_device[ops["name"]]
    return found


def _said(trace: Trace, rows: Rows, took: Floats, ns: int, count: float) -> dict[str, Any]:
    compiled = trace.compiled_ops
    assert compiled is not None
    names = sorted(
        {
            name
            for number in np.unique(compiled["rests_on"][rows]).tolist()
            for name in json.loads(trace.names[number])["names"]
        }
    )
    source = compiled.filled("source", len(trace.names))[rows]
    longest = int(rows[source == np.bincount(source, took).argmax()][0])
    at = place_told(trace.text(compiled, "source", longest))
    module = (trace.text(compiled, "module", longest) or "").removeprefix("jit_")
    on = f"arguments that stay the same ({', '.join(names)})" if names else "constants"
    return {
        "summary": (
            f"{count:.0f} operations a step of {module or 'a compiled program'} rest on nothing but"
            f" {on}: {duration(ns)} of each recorded step{f', most at {at.short}' if at else ''}"
        ),
        "evidence": (
            Evidence("operations that rest on what never changes", ns, "ns per step"),
            Evidence("operations", round(count, 2), "per step"),
        ),
        "location": at,
        "fix": "Compute it once before the loop, and give the result to the step",
        "hint": "factor = jax.jit(factor_of)(points)  # once; the step takes factor",
        "confidence": "high",
    }
