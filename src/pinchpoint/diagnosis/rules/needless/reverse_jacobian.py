"""A Jacobian of few inputs and many outputs is taken in reverse mode.

## What it looks for
`jax.jacrev` or `jax.jacobian` of a function from which at least four times as many numbers come out
as go in, as `pinchpoint run` hears it from JAX while the program is compiled, and the time of the
compiled operations that are a pass back under `vmap`.

## Why it matters
Reverse mode takes a pass back for each number that comes out, forward mode one forward for each
that goes in. Of a network of 2 inputs and 24 outputs these are 24 against 2; a gradient of
the result goes through all of them once more.

## How to fix it
`jax.jacfwd` in place of `jax.jacrev`: the result is the same. Where only some directions or
products are needed, `jax.jvp` computes these alone.

## When to ignore it
Where the function has parts without a forward mode (`custom_vjp`).
"""

from collections.abc import Iterator
from math import ceil

from pinchpoint.analysis.mean.what_if import step_base_ns, what_if_mean
from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.replay.least_step import device_ns
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.tables.compiled_programs import pulled_back_ns, pulled_back_rows
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, MATERIAL_STEP_RATIO, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=Record("a whole run: pinchpoint run python train.py"))

LEAST_TIMES = 4  # outputs for an input: a pass forward may take as long as two back
# Of a pass back, what a pass forward takes with the gradient through it: a judgement.
MOST_FOR_ONE = 3.0


def check(trace: Trace) -> Iterator[Found | Small]:
    """The Jacobian with most outputs for an input."""
    known = [one for one in (trace.run.jacobians if trace.run else ()) if one.inputs > 0]
    one = max(known, key=lambda j: j.outputs / j.inputs, default=None)
    base = step_base_ns(trace) or steps(trace).typical_ns
    if one is None or not base or one.outputs < LEAST_TIMES * one.inputs:
        return
    took, compiled = pulled_back_ns(trace)
    if took < MATERIAL_STEP_RATIO * base:
        yield Small(took / base, MATERIAL_STEP_RATIO)
        return
    forward = one.inputs / one.outputs
    won, at = _won(trace, took, forward), Location(*one.place)
    yield Found(
        summary=(
            f"The Jacobian in {at} has {one.inputs} inputs and {one.outputs} outputs, and is taken"
            f" in reverse mode: {one.outputs} passes back in place of {one.inputs} forward,"
            f" {duration(took)} of a step"
        ),
        evidence=(
            Evidence("passes back that vmap repeats", took, "ns per step"),
            Evidence("all compiled operations", compiled, "ns per step"),
            Evidence("numbers that come out, of one row", one.outputs, "count"),
            Evidence("numbers that go in", one.inputs, "count"),
        ),
        cost_ns_per_step=took,
        saving_ns_per_step=(won.least_ns, won.most_ns),
        likely_saving_ns=won.likely_ns,
        leaves_ns_per_step=won.leaves_ns,
        location=at,
        fix="Take it in forward mode: the result is the same",
        hint="slopes = jax.jacfwd(field)(point)  # in place of jax.jacrev",
        confidence="high",
        confirm=ANY_PROGRAM,
    )


@dataclass(frozen=True)
class _Won:
    """What a pass forward for each input wins of a step."""

    least_ns: int
    likely_ns: int
    most_ns: int
    leaves_ns: int | None = None  # work of the device beside it


def _won(trace: Trace, took: int, forward: float) -> _Won:
    """By replay where the passes are a device's work: the host waits for as much less of it."""
    rows = pulled_back_rows(trace)
    shares = (min(MOST_FOR_ONE * forward, 1.0), forward, 0.0)
    after = [what_if_mean(trace, (ScaleDeviceOps(rows, s, s, s),)) for s in shares]
    known = [one.base_ns - one.step_ns for one in after if one is not None]
    if not len(rows) or len(known) < len(shares):
        most = took if len(rows) else _fair(trace, took)
        known = [round(took * (1 - shares[0])), round(most * (1 - forward)), most]
    least, likely, most = known
    leaves = ceil(device_ns(trace, (ScaleDeviceOps(rows, 0.0, 0.0, 0.0),))) if len(rows) else None
    return _Won(least, likely, most, leaves)


def _fair(trace: Trace, took: int) -> int:
    """Of a program on a CPU: pauses between operations fall on all alike."""
    base, (_, compiled) = step_base_ns(trace) or steps(trace).typical_ns or 0, pulled_back_ns(trace)
    return max(took, round(took / max(compiled, 1) * base))
