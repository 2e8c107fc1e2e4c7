"""The text is made anew from its start for each token.

## What it looks for
Functions that turn tokens into text, on the thread of the steps of inference, whose time or number
of inner calls grows from step to step. Decoding that takes as long in each step is not meant. With
fewer than four steps growth cannot be told from noise, and this is not checked.

## Why it matters
The work for one token grows with the length of the answer, so that the whole answer costs its
square. Long answers end up bound by the host.

## How to fix it
Decode only the new tokens, with a few before them as context (`TextIteratorStreamer`, the
incremental decoders of serving engines), or decode once at the end.

## When to ignore it
Answers of a few dozen tokens.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.ancestry import InputWork, input_work, parents, subtree_sums
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.analysis.work.workload import workload
from pinchpoint.diagnosis.evidence.host_spans import HostSpans, host_spans, without
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import STACKS_OVER_TOKENS
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=STACKS_OVER_TOKENS,
    confirm='pinchpoint bench ab -- "python serve.py" "python serve_incremental.py"',
)

FEWEST_STEPS = 4  # to tell growth from noise
# Of the time, from the first third of the steps to the last; steady work varies by less.
GROWTH_RATIO = 1.2


def check(trace: Trace) -> Iterator[Found]:
    """Detokenising that grows from step to step."""
    if workload(trace).trains:
        return
    spans = host_spans(trace, input_work(trace) == InputWork.DETOKENIZE, "detokenising")
    if spans is None:
        return
    if len(judged_steps(trace)) < FEWEST_STEPS:
        raise NotChecked("too few steps to tell whether detokenising grows")
    took, calls = _per_step(trace, spans)
    third = max(len(took) // 3, 1)
    longer = took[-third:].mean() / max(took[:third].mean(), 1.0)
    if longer < GROWTH_RATIO and not _always_more(calls):
        return
    yield Found(
        summary=(
            f"Text is made from all tokens again for each new one{spans.where},"
            f" {duration(spans.ns_per_step)} a step and growing"
        ),
        evidence=(
            *spans.evidence,
            Evidence("in the first steps", round(took[:third].mean()), "ns per step"),
            Evidence("in the last steps", round(took[-third:].mean()), "ns per step"),
            Evidence("inner calls in the last step", int(calls[-1]), "calls"),
        ),
        cost_ns_per_step=spans.ns_per_step,
        changes=without(trace, spans.rows),
        location=spans.place,
        fix="Decode only the new tokens, with a few before them as context",
        hint="text += tokenizer.decode(ids[-8:])[len(tokenizer.decode(ids[-8:-1])):]",
    )


def _per_step(trace: Trace, spans: HostSpans) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Time in the spans, and rows inside them, of each judged step."""
    host = trace.host_ops
    assert host is not None
    steps = judged_steps(trace)
    at = steps.step_of(host["start_ns"][spans.rows])
    inner = subtree_sums(parents(host), np.ones(len(host), np.int64))[spans.rows]
    took = np.bincount(at, host["duration_ns"][spans.rows], len(steps))
    calls = np.bincount(at, inner, len(steps))
    return took.astype(np.float64), calls.astype(np.float64)


def _always_more(calls: NDArray[np.float64]) -> bool:
    """Whether each step has more inner calls than the one before."""
    return bool((np.diff(calls) > 0).all())
