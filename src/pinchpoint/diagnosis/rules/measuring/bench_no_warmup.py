"""First calls are part of a measurement.

## What it looks for
Pieces that the program times itself and in which code is compiled or loaded, or which take many
times as long as the later ones of the same place. Where the first piece is no longer than others,
its first calls may lie before the recording, and this is not checked.

## Why it matters
First calls create contexts, load kernels, compile, tune and grow the memory pool. Counted, they
make an average of a few calls meaningless.

## How to fix it
Run until the times are steady, and only then measure; best, `pinchpoint bench`.

## When to ignore it
Where the first call is what is asked for.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.frames import shows_python
from pinchpoint.analysis.time.stopwatches import stopwatches
from pinchpoint.diagnosis.evidence.device_work import location_of
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import STACKS_OF_FIRST_CALLS
from pinchpoint.diagnosis.rule import About, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops", "api_calls", "device_ops"),
    record=STACKS_OF_FIRST_CALLS,
    about=About.BENCHMARK,
    confirm='pinchpoint bench op "step()" --setup "..."',
)

FIRST_RATIO = 5.0  # a first call this much longer than the median is no sample of the same thing
FEWEST_PIECES = 4  # with fewer, the first call is a third of all, and the median is no usual time


def check(trace: Trace) -> Iterator[Found]:
    """Timed pieces of which the first is far longer."""
    timed = stopwatches(trace)
    if timed is None and shows_python(trace):
        return
    if timed is None or len(timed.row) < FEWEST_PIECES:
        raise NotChecked("the first calls of a measurement are not in the recording")
    length = timed.end_ns - timed.start_ns
    usual = float(np.median(length[1:]))
    if length[0] < FIRST_RATIO * usual:
        raise NotChecked("the first calls of the measurement may lie before the recording")
    yield Found(
        summary=(
            f"A measurement counts its first call: {length[0] / 1e6:.2f} ms against"
            f" {duration(usual)} of the others"
        ),
        evidence=(
            Evidence("first", int(length[0]), "ns", int(timed.start_ns[0]), timed.name),
            Evidence("median of the others", round(usual), "ns"),
        ),
        cost_ns_per_step=None,
        location=location_of(trace, int(timed.row[0])),
        consequence="the program's own timing is wrong",
        fix="Discard calls until the times are steady",
    )
