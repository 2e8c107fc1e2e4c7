"""Worker processes cannot keep up, because each sample takes them long.

## What it looks for
Steps that wait for a loader with four and more worker processes, at several milliseconds of worker
time a sample. What the workers do is not in the recording; samples that look like pictures may as
well be decoded, and are left open. Tiny rows in thousands are `collate-slow`. Where workers were
measured and make batches in a small part of their time, batches are waited for on their way, which
is `dataloader-starved`. Since what the workers do is inferred from the wait, the confidence is
medium.

## Why it matters
More workers help only as far as there are cores. A loop over pixels in Python takes a hundred times
as long as the same arithmetic on whole arrays.

## How to fix it
Write the transform with whole-array operations, use a cheaper one, or move it to the device, where
it works on the whole batch.

## When to ignore it
Where the data can be transformed once and stored.
"""

from collections.abc import Iterator

from pinchpoint.analysis.host.ancestry import InputWork
from pinchpoint.analysis.host.input_arguments import Shape
from pinchpoint.diagnosis.evidence.loading import loads, made_ratio_if_sent
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=Record("a worker: py-spy record --pid WORKER"),
    parent="dataloader-starved",
    periodic=True,
    knobs=("num_workers",),
    confirm="py-spy record --pid WORKER -o transform.svg  # shows where the time goes",
)

ENOUGH_WORKERS = 4  # with fewer, the first thing to try is more of them
SLOW_SAMPLE_NS = 3_000_000  # of a worker; array operations on a sample take tens of microseconds

_OTHER_CAUSES = (InputWork.DECODE, InputWork.FILES, InputWork.COLLATE)

_CHANNELS = (3, 4)  # of pictures: RGB, and RGB with transparency


def check(trace: Trace) -> Iterator[Found]:
    """Waits for workers that take long for each sample."""
    found = loads(trace)
    if found is None or not found.starving or not found.in_workers:
        return
    if made_ratio_if_sent(trace, found) is not None:  # dataloader-starved says what it waits for
        return
    from pinchpoint.diagnosis.evidence.workers import workers_do

    per_sample, seen = found.ns_per_sample, workers_do(trace)
    if seen is not None and any(seen.mostly(kind) for kind in _OTHER_CAUSES):
        return
    if per_sample is None or (seen is None and _pictures(found.sample)):
        found.visible()
    if per_sample is None or found.workers is None:
        raise NotChecked("the number of workers, or the size of a batch, is not recorded")
    if found.workers < ENOUGH_WORKERS or per_sample < SLOW_SAMPLE_NS:
        return
    yield Found(
        summary=(
            f"{found.workers} workers take {duration(per_sample)} for each sample, and each"
            f" step waits {duration(found.waits_ns_per_step)} for its batch"
            + (f": {seen.said}" if seen else "")
        ),
        evidence=(
            *found.spans.evidence,
            Evidence("worker processes", found.workers, ""),
            Evidence("samples in a batch", found.samples or 0, ""),
            Evidence("time of a worker", round(per_sample), "ns per sample"),
            *(seen.evidence if seen else ()),
        ),
        cost_ns_per_step=found.waits_ns_per_step,
        changes=found.ready,
        location=(seen.location if seen else None) or found.spans.place,
        fix="Write the transform with whole-array operations, or move it to the device",
        confirm=ANY_PROGRAM if seen else "",
        confidence="high" if seen else "medium",
    )


def _pictures(sample: Shape | None) -> bool:
    """Whether a sample has three or four channels, first or last: it may come from a file."""
    if sample is None or len(sample) != 3:
        return False
    return sample[0] in _CHANNELS or sample[-1] in _CHANNELS
