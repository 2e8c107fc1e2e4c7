"""The step waits while pictures, video or sound are decoded.

## What it looks for
A loader without worker processes that spends most of its time in decoders, seen as Python frames
and built-ins of the libraries that decode. What worker processes do is not in the recording of the
training process.

## Why it matters
Decoding a photograph takes several milliseconds of one core, and far more pixels are decoded than
the model looks at when files are larger than its input.

## How to fix it
Store the data at the size that training needs; decode in worker processes, at reduced size (draft
mode of JPEG) or on the device (nvJPEG, DALI, torchvision's decoders).

## When to ignore it
Where the device is busy while the next batch is decoded.
"""

from collections.abc import Iterator

from pinchpoint.analysis.host.ancestry import InputWork
from pinchpoint.diagnosis.evidence.known_ways import with_known_way
from pinchpoint.diagnosis.evidence.loading import loads, work_in_loader
from pinchpoint.diagnosis.finding import Found, Small
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=STACKS,
    parent="dataloader-starved",
    periodic=True,
    knobs=("num_workers",),
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "python train.py" "python train_resized.py"',
)


def check(trace: Trace) -> Iterator[Found | Small]:
    """Decoding on the thread of the steps."""
    yield from (with_known_way(trace, one, keeps_fix=True) for one in _places(trace))


def _places(trace: Trace) -> Iterator[Found]:
    found = loads(trace)
    if found is None or not found.starving:
        return
    from pinchpoint.diagnosis.evidence.workers import found_in_workers, workers_do

    if found.in_workers and (seen := workers_do(trace)) is not None:
        yield from found_in_workers(found, seen, InputWork.DECODE, "decoding", _FIX, _HINT)
        return
    decoding = work_in_loader(trace, found.visible(), InputWork.DECODE)
    if decoding is None:
        return
    yield Found(
        summary=(
            f"The training thread decodes its input{decoding.where},"
            f" {duration(decoding.ns_per_step)} of {duration(found.waits_ns_per_step)} that each"
            " step spends on its batch"
        ),
        evidence=(*decoding.evidence, *found.spans.evidence[:1]),
        cost_ns_per_step=decoding.ns_per_step,
        changes=found.ready,
        location=decoding.place,
        fix=_FIX,
        hint=_HINT,
    )


_FIX = "Store the data at the size that is used, and decode in workers or on the device"
_HINT = "DataLoader(..., num_workers=8); img.draft('RGB', (256, 256))  # before it is decoded"
