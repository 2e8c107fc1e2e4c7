"""An optimizer on a CPU factors its statistics anew in each step.

## What it looks for
In a program without a device: eigendecompositions of symmetric matrices, Cholesky factors and
inverses in the call of an optimizer, in each judged step, which take a tenth of it or more. Where
the function of the program that calls them does little else, that function counts at best: what
makes a root of eigenvalues and vectors goes with them. Singular values and orthogonal factors are
left out: an optimizer that makes its update itself orthogonal (Muon) needs them in each step.

## Why it matters
Second-order optimizers (Shampoo, SOAP, K-FAC, natural gradients) precondition by roots or inverses
of statistics that average over tens or hundreds of steps, so that one step hardly moves them. To
factor a matrix of n rows takes 10 to 25 times as many operations as to multiply two of its size, at
a fraction of the rate.

## How to fix it
Keep the roots, and refresh them every 10 to 100 steps, in turns where there are many matrices.
Accumulate the statistics as before.

## When to ignore it
In the first steps, in which statistics move; where few steps are all there is.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.source_lines import places
from pinchpoint.analysis.replay import RemoveHostTime, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.host_spans import HostSpans, host_spans
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import inside, judged, too_small
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import distinct
from pinchpoint.trace.durations import duration
from pinchpoint.trace.intervals import Intervals, flatten
from pinchpoint.trace.names import rows_named

RULE = Rule(needs=("host_ops",), record=STACKS, advice=NO_HINT)

OPTIMIZER = "Optimizer.step#"
_FACTORS = frozenset(
    f"aten::{name}"
    for name in (
        "_linalg_eigh", "linalg_eigh", "linalg_cholesky", "linalg_cholesky_ex", "cholesky",
        "cholesky_inverse", "linalg_inv", "linalg_inv_ex", "inverse", "linalg_pinv",
    )
)  # fmt: skip
LEAST_RATIO = 0.10  # of the step: host time varies by a tenth between runs of one program
LEFT_RATIO = 0.1  # refreshed every ten steps, the most often that is usual
LITTLE_ELSE = 3.0  # times what the factors take: a whole update is more


def check(trace: Trace) -> Iterator[Found | Small]:
    """Factors of matrices in the optimizer's calls."""
    mine = judged(trace)
    host, step_ns = trace.host_ops, steps(trace).typical_ns
    if mine is None or host is None or not step_ns:
        return
    factors = mine & inside(trace, OPTIMIZER) & rows_named(trace, host, _FACTORS.__contains__)
    spans = host_spans(trace, factors, "factors of matrices")
    if spans is None:
        return
    windows = judged_steps(trace)
    if len(distinct(windows.step_of(host["start_ns"][spans.rows]))) < len(windows):
        return  # refreshed now and then
    if small := too_small(trace, spans):
        yield small
        return
    if spans.ns_per_step < LEAST_RATIO * step_ns:
        yield Small(spans.ns_per_step / step_ns, LEAST_RATIO)
        return
    around = _around(trace, spans)
    yield Found(
        summary=(
            f"The optimizer factors {spans.count:.3g} matrices anew in each step{spans.where}, for"
            f" {duration(spans.ns_per_step)} of it"
        ),
        evidence=(
            *spans.evidence,
            Evidence(
                "the functions that call them", round(per_step(trace, around.total)), "ns per step"
            ),
        ),
        cost_ns_per_step=spans.ns_per_step,
        changes=(ScaleHostSpans(spans.rows, LEFT_RATIO),),
        at_best=(RemoveHostTime(around.start, around.end),),
        location=spans.place,
        fix="Keep the roots or inverses, and refresh them every 10 to 100 steps: their statistics"
        " average over many steps, and hardly move in one",
        hint="if step % 20 == 0: state['roots'] = [inverse_root(s) for s in state['stats']]",
        confidence="medium",
    )


def _around(trace: Trace, spans: HostSpans) -> Intervals:
    """Calls of the program's functions that hold the factors and little else; of none, these."""
    host = trace.host_ops
    assert host is not None
    alone = flatten(host["start_ns"][spans.rows], host.end_ns[spans.rows])
    frame = np.unique(places(trace).frame[spans.rows])
    functions = np.isin(host["name"], frame[frame >= 0]) & (host["kind"] == HostKind.PYTHON)
    functions &= inside(trace, OPTIMIZER) & (host["thread"] == steps(trace).thread)
    calls = flatten(host["start_ns"][functions], host.end_ns[functions])
    return calls if alone.total <= calls.total <= LITTLE_ELSE * alone.total else alone
