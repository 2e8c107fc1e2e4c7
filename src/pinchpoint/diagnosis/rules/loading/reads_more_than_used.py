"""Worker processes of a loader read, or inflate, far more of files than their batches hold.

## What it looks for
In a run folder: workers that have asked files for at least four times the bytes that their batches
hold, and were seen reading and opening files most of the time. Samples that are read whole and cut
to a piece have it, arrays of an archive that are read anew for each of their rows (`np.load` of an
`.npz` reads a whole array each time that it is asked for one, and inflates it if it is compressed),
chunks or row groups of a file that are read for one row. What is read through memory maps is not
counted. Either steps wait for their batches, all of those recorded or some of the run that are far
from typical, or, in a program without a device, all cores were taken, and workers compute on those
of the step.

## Why it matters
A row of a chunk costs as much as the chunk. Where it is compressed, a core inflates some hundred
megabytes in a second, where it copies gigabytes; members of archives are also summed up (CRC).

## How to fix it
Inflate once in each worker and keep the arrays, if they fit; store them uncompressed and map them
(`np.load(path, mmap_mode="r")`), so that an index reads what it names; make chunks as large as what
is read at once; or visit the samples of a chunk together.

## When to ignore it
Where most of each sample is thrown away on purpose, as of random crops, and cannot be left unread.
"""

from collections.abc import Iterator
from typing import Any

from pinchpoint.analysis.host.ancestry import InputWork
from pinchpoint.analysis.memory.shortage import size
from pinchpoint.diagnosis.evidence.loading import MOST_OF_IT_RATIO, loads
from pinchpoint.diagnosis.evidence.rare import sentence
from pinchpoint.diagnosis.evidence.read_by_workers import read_and_used, reads_too_much
from pinchpoint.diagnosis.evidence.shared_cores import late_batches, without_work_of_workers
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import RUN_FOLDER
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=RUN_FOLDER, parent="dataloader-starved", periodic=True)


def check(trace: Trace) -> Iterator[Found]:
    """What workers read for what they hand over."""
    found = loads(trace)
    if found is None or not found.in_workers:
        return
    from pinchpoint.diagnosis.evidence.workers import workers_do

    read = read_and_used(trace)
    if read is None:
        raise NotChecked("what workers read for their batches is not recorded")
    seen = workers_do(trace)
    if seen is None or not seen.mostly(InputWork.FILES) or not reads_too_much(trace):
        return
    times = read.read_bytes / read.used_bytes
    reading = seen.work[InputWork.FILES] / seen.looks
    won = without_work_of_workers(trace, found, reading * (1 - 1 / times))
    if won is None:
        return
    inflates = seen.inflating >= MOST_OF_IT_RATIO * seen.looks
    archives = seen.in_archives >= MOST_OF_IT_RATIO * seen.looks
    how = "inflating and reading files" if inflates else "reading files"
    late = None if found.starving else late_batches(trace)
    yield Found(
        summary=(
            f"Worker processes read {times:.3g} times what their batches hold"
            f"{', and inflate it' if inflates else ', out of archives' if archives else ''}:"
            f" {size(read.read_bytes / read.batches)} of files for a batch of"
            f" {size(read.used_bytes / read.batches)};"
            f" {100 * reading:.0f} % of their time is {how}, in {seen.said}"
            + (f"; a step waits {duration(found.waits_ns_per_step)}" if found.starving else "")
            + (f". {sentence(trace, late)}" if late else "")
        ),
        evidence=(
            Evidence("read from files", read.read_bytes, "bytes in all"),
            Evidence("in their batches", read.used_bytes, "bytes in all"),
            *won.evidence,
            *seen.evidence,
        ),
        cost_ns_per_step=won.likely_ns,
        saving_ns_per_step=won.range_ns,
        likely_saving_ns=None if won.range_ns is None else won.likely_ns,
        changes=won.changes,
        location=seen.location,
        **_advice(inflates=inflates, archives=archives),
        confirm=ANY_PROGRAM,
        confidence="high" if inflates or archives else "medium",
    )


def _advice(*, inflates: bool, archives: bool) -> dict[str, Any]:
    if inflates:
        return {
            "fix": "Inflate it once in each worker and keep the arrays, or store them uncompressed"
            " and map them",
            "hint": "arrays = {name: archive[name] for name in archive.files}  # once a worker",
        }
    if archives:
        return {
            "fix": "Read each array once in each worker and keep it, or store arrays by themselves"
            " (np.save) and map them",
            "hint": "arrays = {name: archive[name] for name in archive.files}  # once a worker",
        }
    return {
        "fix": "Read only what is used: map uncompressed arrays, or make chunks as large as what is"
        " read at once",
        "hint": 'data = np.load("all.npy", mmap_mode="r"); row = data[index]',
    }
