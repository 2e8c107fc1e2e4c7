"""Logs, histograms or pictures are written too often.

## What it looks for
File and image writers, loggers and experiment trackers inside the steps; and the program's own
functions that spend most of their time in them, in copying to the host and in numeric packages on
the CPU, as a function does that makes histograms of all weights.

## Why it matters
The thread that launches is busy with encoding and writing. The device has nothing to do.

## How to fix it
Write every few hundred steps, keep sums on the device in between, and hand the writing to a thread
or process.

## When to ignore it
Where logging happens at rare steps.
"""

from collections.abc import Iterator

from pinchpoint.analysis.host.frames import copies_to_host, functions_doing, numeric_on_host
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.host_spans import host_spans, how_often, without
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=STACKS, periodic=True)

LOGGING_RATIO = 0.2  # a function that spends this much of its time in writers is there to log


def check(trace: Trace) -> Iterator[Found]:
    """Writers and the functions around them."""
    host = trace.host_ops
    if host is None:
        return
    writing = activity(trace)[: len(host)] == GapKind.LOGGING
    helping = numeric_on_host(trace) | copies_to_host(trace)
    logging = functions_doing(trace, writing, helping, LOGGING_RATIO)
    spans = host_spans(trace, writing | logging, "logging and writing")
    if spans is None:
        return
    yield Found(
        summary=(
            f"The training thread writes logs or pictures{spans.where},"
            f" {how_often(trace, spans)}, for {duration(spans.ns_per_step)} of the mean step"
        ),
        evidence=spans.evidence,
        cost_ns_per_step=spans.ns_per_step,
        changes=without(trace, spans.rows),
        location=spans.place,
        fix="Write every few hundred steps, or in another thread",
        hint="if step % 500 == 0: log(...)",
        confirm='pinchpoint bench ab -- "python train.py" "python train_fixed.py"',
    )
