"""A compiled JAX program on the CPU is given large arrays of NumPy, which are put there each time.

## What it looks for
In a recording of JAX on the CPU: `DevicePut` on the thread of the steps, which takes an array of
NumPy as an array of JAX, and `H2D Dispatch` on the threads of XLA, which copies it; together at
least a tenth of the step. Where looks at the run saw the call that does it, its line is told.

## Why it matters
A compiled function puts all arguments that are no arrays of JAX, at each call. An array of 64 bits
is rewritten in 32 bits at that, and one that is not aligned is copied. The program that reads it
begins after that.

## How to fix it
Put it once before the loop (`table = jnp.asarray(table)`, `jax.device_put`), in the type that the
program computes with. Of a batch that is new in each step: take it in that type from the start, and
put the next one while this one is computed.

## When to ignore it
Where all of it is new in each step and comes in the right type: then it is the price of reading it.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.on_cpu import compiled_for_cpu
from pinchpoint.analysis.mean.stacks import own_frame
from pinchpoint.analysis.mean.ways import imports
from pinchpoint.analysis.mean.whole_run import main_spent
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.host_spans import named
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.regex import regex
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration
from pinchpoint.trace.intervals import flatten

RULE = Rule(
    needs=("host_ops",),
    record=Record("the .xplane.pb that jax.profiler writes, which holds the runtime's own spans"),
)

LEAST_RATIO = 0.1  # of the step: putting a batch of usual size takes less
# A judgement: a batch that is new each time has to be put at any rate, and what its type costs does
# not show.
SURE_SHARE = 0.3
_CALL = regex(r"PjitFunction\((\w+)\)")  # a lambda has no name to look for
_PUTS = regex(
    r"(^|/)jax/_src/(api\.py\(\d+\): device_put|numpy/array_constructors\.py"
    r"|interpreters/pxla\.py\(\d+\): (shard_args|batched_device_put)"
    r"|dispatch\.py\(\d+\): _device_put)"
)


def check(trace: Trace) -> Iterator[Found | Small]:
    """Puts on the thread of the steps, and the copies that follow on others."""
    host = trace.host_ops
    if host is None or not compiled_for_cpu(trace):
        return
    windows, step_ns = judged_steps(trace), steps(trace).typical_ns
    if not len(windows) or not step_ns:
        raise NotChecked("no step is known")
    mine = host["thread"] == steps(trace).thread
    inside = windows.step_of(host["start_ns"]) >= 0
    puts = np.flatnonzero(named(trace, "DevicePut".__eq__) & inside & mine)
    copies = np.flatnonzero(named(trace, "H2D Dispatch".__eq__) & inside)
    rows = np.concatenate([puts, copies])
    both_ns = per_step(trace, flatten(host["start_ns"][rows], host.end_ns[rows]).total)
    put_ns = per_step(trace, flatten(host["start_ns"][puts], host.end_ns[puts]).total)
    if not len(puts):
        return
    if both_ns < LEAST_RATIO * step_ns:
        yield Small(both_ns / step_ns, LEAST_RATIO)
        return
    most_ns = min(both_ns, max(step_ns - _computing_ns(trace), 0.0))
    longest = int(puts[host["duration_ns"][puts].argmax()])
    function = _function(trace, longest)
    at = _place(trace, function)
    to = f" to {function}" if function else ""
    yield Found(
        summary=(
            f"Arrays of NumPy that are given{to}{f' in {at}' if at else ''} are put into arrays of"
            f" JAX {per_step(trace, len(puts)):.3g} × a step: {duration(both_ns)} of it, with the"
            " copies that follow"
        ),
        evidence=(
            Evidence("on the thread of the steps", round(put_ns), "ns per step"),
            Evidence("with copies on other threads", round(both_ns), "ns per step"),
            Evidence(
                "longest",
                int(host["duration_ns"][longest]),
                "ns",
                int(host["start_ns"][longest]),
                "DevicePut",
            ),
        ),
        cost_ns_per_step=round(min(both_ns, step_ns)),
        saving_ns_per_step=(round(SURE_SHARE * most_ns), round(most_ns)),
        location=at,
        fix="Put what stays the same once before the loop, in the type that is computed with",
        hint="table = jnp.asarray(table, jnp.float32)  # before the loop",
        confidence="medium",
    )


def _computing_ns(trace: Trace) -> float:
    """Of a step, in what XLA compiled."""
    rows = trace.compiled_ops
    assert rows is not None
    mine = judged_steps(trace).step_of(rows["start_ns"]) >= 0
    return per_step(trace, flatten(rows["start_ns"][mine], rows.end_ns[mine]).total)


def _function(trace: Trace, row: int) -> str | None:
    """The compiled function that a row is in the call of."""
    host = trace.host_ops
    assert host is not None
    while 0 <= row < len(host):
        if (call := _CALL.fullmatch(trace.text(host, "name", row) or "")) is not None:
            return call[1]
        row = int(host.filled("parent", len(host))[row])
    return None


def _place(trace: Trace, function: str | None) -> Location | None:
    """The line of the program with most looks at that call, or at what puts arrays."""
    samples = trace.run.samples if trace.run else None
    seen: Counter[tuple[str, int, str]] = Counter()
    spent = main_spent(samples) if samples else ()
    for one in (one for one in spent if not imports(one.frames)):
        call = function is not None and one.doing.removesuffix("()").rpartition(".")[2] == function
        own = own_frame(one.frames) if call or any(map(_PUTS.search, one.frames)) else None
        if own is not None:
            seen[own.file, own.line, own.function] += one.us
    return next((Location(*at) for at, _ in seen.most_common(1)), None)
