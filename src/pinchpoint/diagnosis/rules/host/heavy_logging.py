"""Logs, histograms or pictures are written too often.

## What it looks for
File and image writers, loggers and experiment trackers inside the steps; and the program's own
functions that write in most of their calls and spend most of their time in that, in copying to the
host and in computing on the CPU, as a function does that makes histograms of all weights. Without
Python stacks no writer shows. What is computed on the host and not written is `metric-on-cpu`.

## Why it matters
The thread that launches is busy with encoding and writing. The device has nothing to do.

## How to fix it
Write every few hundred steps, keep sums on the device in between, and hand the writing to a thread
or process.

## When to ignore it
Where logging happens at rare steps.
"""

from collections.abc import Iterator

from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis.evidence.host_spans import host_spans, how_often, without
from pinchpoint.diagnosis.evidence.rare import rare_and_small, rare_found
from pinchpoint.diagnosis.evidence.writers import writing, writing_functions
from pinchpoint.diagnosis.finding import Found, Small
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=STACKS, periodic=True, removes_host_work=True)


def check(trace: Trace) -> Iterator[Found | Small]:
    """Writers and the functions around them; rare ones by the samples of the whole run."""
    rare = tuple(rare_found(trace, (GapKind.LOGGING,), fix=_FIX, hint=_HINT))
    if rare:
        yield from rare
        return
    yield from rare_and_small(trace, (GapKind.LOGGING,))
    host = trace.host_ops
    if host is None:
        return
    wanted = writing(trace) | writing_functions(trace)
    wanted &= host["thread"] == steps(trace).thread  # a thread that writes for it is the remedy
    spans = host_spans(trace, wanted, "logging and writing")
    if spans is None:
        return
    yield Found(
        summary=(
            f"The training thread writes logs or pictures{spans.where},"
            f" {how_often(trace, spans)}, for {duration(spans.ns_per_step)}"
            " of the mean recorded step"
        ),
        evidence=spans.evidence,
        cost_ns_per_step=spans.ns_per_step,
        changes=without(trace, spans.rows),
        location=spans.place,
        fix=_FIX,
        hint=_HINT,
    )


_FIX = "Write every few hundred steps, or in another thread"
_HINT = "if step % 500 == 0: log(...)"
