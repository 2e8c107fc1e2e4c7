"""Operators get their device memory from the driver, and give it back, in every step.

## What it looks for
Driver calls that free device memory inside operators, step after step, with driver allocations
beside them. Frees inside convolutions alone are workspaces of a search (cudnn-autotune-churn), and
frees outside operators are the program's wish (empty-cache-in-loop).

In recordings of JAX: executions that take milliseconds for XLA's span "Build buffer allocations",
in most steps, with no mark of XLA's own allocator in them. A run folder also has the variable, as
the program had it; without it the confidence is medium.

## Why it matters
The framework keeps what it once got from the driver, so that an allocation costs a microsecond.
At the driver it costs tens of microseconds, and each free waits for the whole device.

## How to fix it
Where nearly every operator allocates, the cache is switched off: remove
`PYTORCH_NO_CUDA_MEMORY_CACHING` (or `PYTORCH_NO_HIP_MEMORY_CACHING`), and the debugger or sanitiser
that needed it. Where a few do, memory is nearly full or in pieces, and the cache gives blocks back
to get others: use a smaller batch, or `expandable_segments`. With JAX unset
`XLA_PYTHON_CLIENT_ALLOCATOR=platform`; `XLA_PYTHON_CLIENT_MEM_FRACTION` shares a device.

## When to ignore it
In the first steps, in which the cache fills.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.ancestry import parents, within
from pinchpoint.analysis.host.attribution import called_by_operators
from pinchpoint.analysis.replay import DropSyncs
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step, rows_in_steps
from pinchpoint.diagnosis.evidence.device_work import busiest_place
from pinchpoint.diagnosis.evidence.host_spans import named
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.diagnosis.rules.memory._xla_buffers import from_the_driver
from pinchpoint.trace import ApiKind, HostKind, Trace
from pinchpoint.trace.arrays import distinct

RULE = Rule(needs=("api_calls", "host_ops"), record=CPU_AND_DEVICE, advice=NO_HINT)

MOST_STEPS_RATIO = 0.6  # of the steps: a habit of the loop; growth at the start falls into few
FEWEST_FREES = 4  # a step; one or two may be a library's workspace
OF_A_SEARCH_RATIO = 0.5  # of the frees inside convolutions: then it is cudnn-autotune-churn
SWITCHED_OFF_RATIO = 0.1  # driver allocations for each operator; with a cache there are none


def check(trace: Trace) -> Iterator[Found]:
    """Frees inside operators, and the allocations that go with them."""
    calls, host, steps = trace.api_calls, trace.host_ops, judged_steps(trace)
    if calls is None or host is None or not len(steps):
        return
    yield from from_the_driver(trace)
    in_steps = rows_in_steps(trace, calls)
    inside = in_steps & called_by_operators(trace)
    frees = np.flatnonzero((calls["kind"] == ApiKind.FREE) & inside)
    mallocs = np.flatnonzero((calls["kind"] == ApiKind.MALLOC) & inside)
    freeing = distinct(steps.step_of(calls["start_ns"][frees]))
    if len(freeing) < max(2, MOST_STEPS_RATIO * len(steps)) or not len(mallocs):
        return
    if per_step(trace, len(frees)) < FEWEST_FREES:
        return
    where = calls.filled("host_op", len(host)).astype(np.intp)
    if _in_convolutions(trace, where[frees]).mean() > OF_A_SEARCH_RATIO:
        return
    operators = (host["kind"] == HostKind.OPERATOR) & rows_in_steps(trace, host)
    off = len(mallocs) >= SWITCHED_OFF_RATIO * operators.sum()
    if off:  # then tensors that die between operators are given back as well
        frees = np.flatnonzero((calls["kind"] == ApiKind.FREE) & in_steps)
    rows = np.concatenate((frees, mallocs))
    took = calls["duration_ns"][rows].astype(np.int64)
    place, _ = busiest_place(trace, where[rows], took)
    longest, cost = int(rows[took.argmax()]), round(per_step(trace, int(took.sum())))
    yield Found(
        summary=(
            f"Operators get memory from the driver {per_step(trace, len(mallocs)):.3g} × a step and"
            f" give it back {per_step(trace, len(frees)):.3g} ×:"
            f" {'the cache is switched off' if off else 'the cache cannot hold what they need'}"
        ),
        evidence=(
            Evidence("driver frees", round(per_step(trace, len(frees)), 2), _EACH),
            Evidence("driver allocations", round(per_step(trace, len(mallocs)), 2), _EACH),
            Evidence("operators", round(per_step(trace, int(operators.sum())), 2), _EACH),
            Evidence("time in those calls", cost, "ns per step"),
            Evidence(
                "longest",
                int(took.max()),
                "ns",
                int(calls["start_ns"][longest]),
                trace.text(calls, "name", longest),
            ),
        ),
        cost_ns_per_step=cost,
        changes=(DropSyncs(rows),),
        location=place,
        fix=_SWITCH_ON if off else "Use a smaller batch, or segments that can grow",
        hint=_VARIABLES if off else "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    )


def _in_convolutions(trace: Trace, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    host = trace.host_ops
    assert host is not None
    convolutions = named(trace, lambda name: name.startswith("aten::") and "conv" in name)
    found: NDArray[np.bool_] = within(parents(host), convolutions)[:-1][rows]
    return found


_EACH = "per step"
_SWITCH_ON = "Switch the framework's cache of device memory on again"
_VARIABLES = "unset PYTORCH_NO_CUDA_MEMORY_CACHING PYTORCH_NO_HIP_MEMORY_CACHING"
