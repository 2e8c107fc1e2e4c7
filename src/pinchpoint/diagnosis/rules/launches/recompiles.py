"""The compiler runs again and again in steady state.

## What it looks for
Acts of compiling inside the judged steps, each a millisecond or more: the phases that PyTorch's
compiler times itself, or calls of the functions in which Dynamo, Inductor, Triton or XLA compile.
Calls of what was compiled, launches of Triton kernels and look-ups in a cache are none, in
whichever file they stand. Where compiled code runs in a recording without Python frames and without
such phases, this is not checked. A recording without steps in which XLA compiles
one function after the other, each once, is one of a program's start, and shows nothing.

## Why it matters
One compilation takes from a tenth of a second to minutes, during which nothing is launched. It is
an investment that never returns if each step needs a new one.

## How to fix it
`torch.compile(dynamic=True)` or `mark_dynamic`, padding to a few sizes, tensors in place of Python
scalars that change. `TORCH_LOGS=recompiles` names the guard that failed.

## When to ignore it
In the first steps.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.frames import shows_python
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.host_activity import GapKind, activity, meaning_of
from pinchpoint.diagnosis.evidence.host_spans import (
    HostSpans,
    host_spans,
    how_often,
    outermost,
    without,
)
from pinchpoint.diagnosis.evidence.whole_run import compiles_at
from pinchpoint.diagnosis.finding import Found, Location
from pinchpoint.diagnosis.record import STACKS_AFTER_WARM_UP
from pinchpoint.diagnosis.rule import ANY_PROGRAM, Advice, Framework, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Rows, distinct
from pinchpoint.trace.durations import duration
from pinchpoint.trace.names import rows_named

_ELSEWHERE: Advice = {
    "fix": "Pass what changes from step to step as arrays, not as static arguments; pad inputs",
    "hint": None,
    "confirm": ANY_PROGRAM,
}

RULE = Rule(
    needs=("host_ops",),
    record=STACKS_AFTER_WARM_UP,
    periodic=True,
    advice={Framework.OTHER: _ELSEWHERE},
    confirm='TORCH_LOGS=recompiles pinchpoint bench ab -- "python a.py" "python b.py"',
)

# One kernel out of a cache on disk takes milliseconds; a check of guards takes tens of µs.
LEAST_COMPILATION_NS = 1_000_000
_COMPILED = ("Torch-Compiled Region", "CompiledFunction", "triton_")


def check(trace: Trace) -> Iterator[Found]:
    """Compilation inside the steps."""
    host = trace.host_ops
    if host is None:
        return
    compiling = activity(trace)[: len(host)] == GapKind.COMPILE
    acts = outermost(trace, compiling) & (host["duration_ns"] >= LEAST_COMPILATION_NS)
    if _starts(trace, np.flatnonzero(acts)):
        return
    spans = host_spans(trace, acts, "compiling")
    if spans is None:
        if not (compiling.any() or shows_python(trace)) and _runs_compiled_code(trace):
            raise NotChecked("compiled code runs, and compiling would not show in the recording")
        return
    place = (compiles_at(trace) or _named(spans)) if _is_compiler(spans.place) else spans.place
    where = f" in {place}" if place else ""
    yield Found(
        summary=(
            f"Code is compiled anew inside the steps{where}, {how_often(trace, spans)},"
            f" {duration(spans.ns_per_step)} of the mean recorded step"
        ),
        evidence=spans.evidence,
        cost_ns_per_step=spans.ns_per_step,
        changes=without(trace, spans.rows, only_on_host=True),
        location=place,
        fix="Compile for dynamic shapes, or pad inputs to a few sizes",
        hint="torch.compile(model, dynamic=True)  # TORCH_LOGS=recompiles names the guard",
    )


def _starts(trace: Trace, acts: Rows) -> bool:
    """Whether no step is known, and most of the compiling is of functions that XLA compiles for
    the first time."""
    host = trace.host_ops
    assert host is not None
    calls = rows_named(trace, host, lambda name: name.startswith("PjitFunction("))
    if steps(trace).how != "none" or not calls.any():
        return False
    around = nearest(parents(host), calls)[acts]
    known = acts[around < len(host)]
    named = host["name"][around[around < len(host)]]
    again = np.ones(len(named), np.bool_)
    again[np.unique(named, return_index=True)[1]] = False
    took = host["duration_ns"][known]
    return len(known) > 0 and bool(2 * took[again].sum() < took.sum())


def _is_compiler(place: Location | None) -> bool:
    """Also where no line is known: JAX writes the names of files without their folders."""
    if place is None or place.file is None:
        return True
    return meaning_of(f"{place.file}({place.line}): {place.function}") == GapKind.COMPILE


def _named(spans: HostSpans) -> Location | None:
    """What the recording says of the place where it knows no line: a module or an operator."""
    return spans.place if spans.place is not None and spans.place.file is None else None


def _runs_compiled_code(trace: Trace) -> bool:
    tables = [table["name"] for table in (trace.host_ops, trace.device_ops) if table is not None]
    used = distinct(np.concatenate(tables)).tolist()
    return any(trace.names[name].startswith(_COMPILED) for name in used)
