"""The program's own stopwatch stops before the device is done.

## What it looks for
Two readings of a Python clock in a step, with launches between them and no wait for the device,
while the work that was launched goes on well after the second reading; and readings that together
say less than the work took. Where the launch queue is full, or the host waits in the same loop of
timed pieces, every piece is late by what the one before was, and their sum is right. Without
Python stacks no reading of a clock shows.

## Why it matters
Launching is asynchronous: such a stopwatch measures how fast the host submits work, not how fast
the device does it. Its figure can be wrong by any factor.

## How to fix it
Time with CUDA events, or synchronise before the clock is read; best, `pinchpoint bench`.

## When to ignore it
Where submission time is what is asked for.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.frames import shows_python
from pinchpoint.analysis.time.stopwatches import Stopwatches, stopwatches
from pinchpoint.diagnosis.evidence.device_work import location_of
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import NO_TORCH_CUDA, About, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops", "api_calls", "device_ops"),
    record=STACKS,
    about=About.BENCHMARK,
    advice=NO_TORCH_CUDA,
    confirm='pinchpoint bench op "step()" --setup "..."',
)

# Device time after the stop, against what the stopwatch says; and what it says too little.
LEAST_MISSED_RATIO = 0.25
MOSTLY_RATIO = 0.5  # of the timed pieces; one that is cut by the recording's end proves nothing


def check(trace: Trace) -> Iterator[Found]:
    """Timed pieces whose work outlives them."""
    timed = stopwatches(trace)
    if timed is None:
        if shows_python(trace):  # and no reading of a clock: nothing is timed
            return
        raise NotChecked("no Python frames are recorded, so no readings of a clock")
    open_ended = ~timed.waits & (timed.launches > 0)
    missed = timed.device_end_ns - timed.end_ns
    wrong = open_ended & (missed > LEAST_MISSED_RATIO * (timed.end_ns - timed.start_ns))
    launching = timed.launches > 0
    if _right_together(timed):
        return
    if not wrong.any() or wrong.sum() < MOSTLY_RATIO * launching.sum():
        return
    worst = int(missed.argmax())
    row = int(timed.row[worst])
    says = int(timed.end_ns[worst] - timed.start_ns[worst])
    yield Found(
        summary=(
            f"The program times launches, not work: a stopwatch says {duration(says)} while the"
            f" device is done {duration(missed[worst])} later"
        ),
        evidence=(
            Evidence("timed pieces without a wait", int(wrong.sum()), "pieces"),
            Evidence("the stopwatch says", says, "ns", int(timed.start_ns[worst]), timed.name),
            Evidence("device work after it stopped", int(missed[worst]), "ns"),
        ),
        cost_ns_per_step=None,
        location=location_of(trace, row),
        consequence="the program's own timing is wrong",
        fix="Time with CUDA events, or synchronise before reading the clock",
        hint="torch.cuda.synchronize(); t1 = time.perf_counter()",
    )


def _right_together(timed: Stopwatches) -> bool:
    """Whether the readings add up to the work; by the later half of the steps, when the queue has
    filled. A step counts as a whole: a piece that waits for the one before is right with it."""
    steps = np.unique(timed.step)
    late = timed.step >= steps[len(steps) // 2]
    says = int((timed.end_ns - timed.start_ns)[late].sum())
    return says >= (1 - LEAST_MISSED_RATIO) * int(timed.work_ns[late].sum())
