"""The step waits while many small files are opened and read.

## What it looks for
A loader without worker processes that spends most of its time in opening, reading and parsing
files, seen as Python frames and built-ins. What worker processes do is not in the recording of the
training process. Where most of it is inside an archive or a compressed file that is inflated at
each access, that is what is said.

## Why it matters
Opening, reading and parsing a file costs tens of microseconds on a local disk and milliseconds on a
network file system, whatever its size. The bandwidth of the storage does not matter, so a faster
disk changes little.

## How to fix it
Pack the samples into shards (tar files, WebDataset, Parquet) or one memory-mapped array; read them
in sequence; use worker processes. What an archive holds is best inflated once, and kept: `np.load`
of an `.npz` inflates a whole array each time that it is asked for one.

## When to ignore it
Where the device is busy while the next batch is read.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import InputWork, parents, subtree_sums
from pinchpoint.diagnosis.evidence.host_spans import HostSpans, named
from pinchpoint.diagnosis.evidence.known_ways import with_known_way
from pinchpoint.diagnosis.evidence.loading import MOST_OF_IT_RATIO, loads, work_in_loader
from pinchpoint.diagnosis.evidence.read_by_workers import reads_too_much
from pinchpoint.diagnosis.finding import Found, Small
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.regex import regex
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=STACKS,
    parent="dataloader-starved",
    periodic=True,
    confirm='pinchpoint bench ab -- "python train.py" "python train_packed.py"',
)


def check(trace: Trace) -> Iterator[Found | Small]:
    """File access on the thread of the steps."""
    yield from (with_known_way(trace, one, keeps_fix=True) for one in _places(trace))


def _places(trace: Trace) -> Iterator[Found]:
    found = loads(trace)
    if found is None or not found.starving:
        return
    from pinchpoint.diagnosis.evidence.workers import found_in_workers, workers_do

    if found.in_workers and reads_too_much(trace):
        return  # then it is no matter of many small files
    if found.in_workers and (seen := workers_do(trace)) is not None:
        yield from found_in_workers(
            found, seen, InputWork.FILES, "opening and reading files", _FIX, _HINT
        )
        return
    reading = work_in_loader(trace, found.visible(), InputWork.FILES)
    if reading is None:
        return
    inflates = _inflates(trace, reading)
    does = (
        "inflates an archive" if inflates else f"opens and reads {reading.count:.0f} files a step"
    )
    yield Found(
        summary=(
            f"The training thread {does}{reading.where},"
            f" {duration(reading.ns_per_step)} of {duration(found.waits_ns_per_step)} that each"
            " step spends on its batch"
        ),
        evidence=(*reading.evidence, *found.spans.evidence[:1]),
        cost_ns_per_step=reading.ns_per_step,
        changes=found.ready,
        location=reading.place,
        fix=_FIX_OF_ARCHIVES if inflates else _FIX,
        hint=_HINT_OF_ARCHIVES if inflates else _HINT,
    )


_INFLATES = regex(r"<built-in method decompress of |<built-in (method|function) decompress>")


def _inflates(trace: Trace, reading: HostSpans) -> bool:
    """Whether most of the time is in calls that decompress what they read."""
    host = trace.host_ops
    assert host is not None
    calls = named(trace, lambda name: _INFLATES.search(name) is not None).astype(np.int64)
    inside = subtree_sums(parents(host), calls)[reading.rows] > 0
    took = host["duration_ns"][reading.rows]
    return bool(took[inside].sum() >= MOST_OF_IT_RATIO * took.sum())


_FIX_OF_ARCHIVES = "Inflate it once before the loop and keep the arrays, or store them uncompressed"
_HINT_OF_ARCHIVES = "arrays = {name: archive[name] for name in archive.files}  # once"


_FIX = "Pack the samples into shards or one memory-mapped array"
_HINT = 'data = np.load("all.npy", mmap_mode="r")'
