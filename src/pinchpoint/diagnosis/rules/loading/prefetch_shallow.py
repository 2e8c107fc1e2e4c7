"""Workers are fast enough on average, but their queue runs empty now and then.

## What it looks for
Waits for a loader's batch that come after runs of ready batches longer than the queue is deep:
workers who could not keep up on average would never fill it again. Or a rare long wait for a batch
that, by when it was asked for and when it came, took far longer than those before it. Only time in
which the thread blocks is waiting. Waits a whole round of workers apart are workers that cannot
keep up (`dataloader-starved`), and one single wait is an incident. Where the number of workers is
not recorded this is not checked.

## Why it matters
A few slow batches (long sequences, large files, a busy disk) stop the device although the workers
have time to spare. A deeper queue hides them.

## How to fix it
`prefetch_factor=8` (memory: batches × workers), more workers, or batches of more even cost.

## When to ignore it
Where the rare wait is the start of an epoch.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.mean.mean_step import at_the_rate_of_the_run
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.diagnosis.evidence.exceptions import evidence, how_often
from pinchpoint.diagnosis.evidence.loading import (
    LEAST_WAIT_NS,
    PREFETCH_FACTOR,
    READY_BATCH_RATIO,
    SLOW_BATCH_RATIO,
    Loads,
    RareWaits,
    loads,
    rare_waits,
)
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import STACKS_OVER_MANY_STEPS
from pinchpoint.diagnosis.rule import NO_KNOB, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=STACKS_OVER_MANY_STEPS,
    parent="dataloader-starved",
    periodic=True,
    knobs=("prefetch_factor",),
    advice=NO_KNOB,
    confirm="pinchpoint try --knob prefetch_factor=8 -- python train.py",
)

FEWEST_WAITS = 2  # one is an incident


def check(trace: Trace) -> Iterator[Found]:
    """Waits after which the queue fills up again."""
    found, host = loads(trace), trace.host_ops
    if found is None or host is None or not found.in_workers:
        return
    waiting = found.waited_ns >= LEAST_WAIT_NS
    if waiting.sum() >= FEWEST_WAITS and found.workers is None:
        raise NotChecked("the number of workers is not recorded")
    depth, ready = (found.workers or 0) * PREFETCH_FACTOR, _ready_after_waits(waiting)
    if len(ready) >= FEWEST_WAITS and np.median(ready) > depth:
        yield _again_and_again(found, waiting, depth, float(np.median(ready)))
        return
    rare = None if found.starving else rare_waits(trace, found)
    if rare is not None and (rare.slower_ratio or 0) >= SLOW_BATCH_RATIO:
        yield _slow_batch(trace, found, rare)


def _again_and_again(found: Loads, waiting: NDArray[np.bool_], depth: int, ready: float) -> Found:
    slow = found.spans.rows[waiting]
    return Found(
        summary=(
            f"{len(slow)} of {len(waiting)} batches come late, though between them"
            f" {ready:.0f} are ready in a row, more than the queue's {depth}"
        ),
        evidence=(
            *found.spans.evidence,
            Evidence("ready batches after a wait", ready, "batches"),
            Evidence("depth of the queue", depth, "batches"),
        ),
        cost_ns_per_step=found.waits_ns_per_step,
        changes=(ScaleHostSpans(slow, READY_BATCH_RATIO),),
        location=found.spans.place,
        fix="Let each worker prepare more batches ahead",
        hint="DataLoader(..., prefetch_factor=8)",
        confidence="medium",
    )


def _slow_batch(trace: Trace, found: Loads, rare: RareWaits) -> Found:
    ns = at_the_rate_of_the_run(trace, rare.cause.ns_per_step)
    ratio = rare.slower_ratio or 0.0
    return Found(
        summary=(
            f"{how_often(rare.mean, rare.cause).capitalize()} a batch takes at least"
            f" {ratio:.2g} × as long as those before it, and the queue runs empty:"
            f" {duration(ns)} of the mean step"
        ),
        evidence=(*evidence(trace, rare.mean, rare.cause), *found.spans.evidence),
        cost_ns_per_step=ns,
        changes=(ScaleHostSpans(rare.rows, READY_BATCH_RATIO),),
        saving_ns_per_step=(round(LEAST_RATIO * ns), ns),
        location=found.spans.place,
        fix="Let each worker prepare more batches ahead, or make slow batches as quick as others",
        hint="DataLoader(..., prefetch_factor=8)",
        confidence="medium",
    )


LEAST_RATIO = 0.75  # of the waits: workers that are busy all the time gain nothing from a queue


def _ready_after_waits(waiting: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many batches were ready after each wait before the next; the last run is cut off."""
    at = np.flatnonzero(waiting)
    runs: NDArray[np.int64] = np.diff(at) - 1
    return runs
