"""Several ranks compute the same from the same values.

## What it looks for
`pinchpoint run` notes of six steps of each rank hashes of what its largest operations gave (1 MiB
and more), and a run folder that has several ranks tells which of these were the same bits: the same
operator with the same shapes at the same place among its like, in half of the watched steps at
least. What is the same in each step, or one value all over, tells nothing and is left out; so are
operations that write to what is there already, as optimizers do, and collectives. From a trace
alone nothing is known of values: not checked.

## Why it matters
Each of the ranks does all of the work where each could do a part of it. Where nearly all that was
compared is the same, the ranks are given the same batch: the job does no more than one of them.

## How to fix it
Scores that were gathered only for a loss: the loss of each rank's own part of the classes, for
which a maximum and two sums a row are exchanged, or of its own rows. What works on each token by
itself between two sharded layers: on each rank's part of the sequence (sequence parallelism). What
only one rank needs: on that one. The same batch: a sampler that shares out the data
(`DistributedSampler`), or another seed for each rank.

The least that is said leaves room for an all-gather of the results that other work may read (of
operations after each other, those of the last), at the best rate that the job's own collectives of
1 MiB and more reached; the most is for a fix that exchanges next to nothing. Where no such
collective was recorded, it is said that the exchange is not in it. Another batch exchanges nothing.

## When to ignore it
Where handing out the results takes longer than computing them: the ranks then compute it all, by
intent.
"""

from collections.abc import Iterator

from pinchpoint.analysis.replay import Change, ScaleDeviceOps, ScaleHostSpans
from pinchpoint.diagnosis.evidence.handed_out import gather_ns, results_bytes
from pinchpoint.diagnosis.evidence.vain_work import Vain, counted, vain, watched
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import WATCHED_RUN
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=WATCHED_RUN, advice=NO_HINT)

# Of what was compared. Beside shared batches, only weights of its own tell one rank's work from
# another's: a job that is sharded at all has half of its largest results for itself.
SAME_BATCH_RATIO = 0.9


def check(trace: Trace) -> Iterator[Found]:
    """Work of each place that other ranks do as well."""
    values = watched(trace)
    for work in () if values is None else values.work or ():
        rows = vain(trace, work, beside_modules=False) if work.kind == "ranks" else None
        if rows is not None and (work.of or 0) > 1:
            yield _found(trace, rows, work.of or 0)


def _found(trace: Trace, rows: Vain, ranks: int) -> Found:
    work = rows.work
    same_batch = work.shared_ratio >= SAME_BATCH_RATIO
    who = "Both ranks" if ranks == 2 else f"{ranks} ranks"
    where = f" in {rows.place}" if rows.place else ""
    device = f"{duration(rows.device_ns)} of the device's time, " if rows.device_ns else ""
    size_bytes = None if same_batch else results_bytes(trace, work)
    gather = gather_ns(trace, size_bytes, ranks) if size_bytes else None
    beside = " and so is nearly all that was compared: they are given the same batch"
    return Found(
        summary=(
            f"{who} compute the same{where}: the bits that {counted(work)} a step give, mostly"
            f" {rows.longest}, are equal{beside if same_batch else ''}; {device}"
            f"{duration(rows.host_ns)} of the host's as recorded"
        ),
        evidence=(
            Evidence("operations with the same results", work.times, "per step"),
            Evidence("ranks that compute them", ranks, "count"),
            Evidence("of all results that were compared", round(work.shared_ratio, 4), "ratio"),
            *rows.evidence,
            *_handed_out(size_bytes, gather),
        ),
        cost_ns_per_step=max(rows.device_ns, rows.host_ns),
        changes=_shared_out(rows, 1 / ranks, gather or 0),
        at_best=_shared_out(rows, 1 / ranks) if gather else (),
        location=rows.place,
        fix=_SAME_BATCH if same_batch else f"{_SHARE}. {_exchange(size_bytes, gather)}",
        hint=_SAMPLER if same_batch else None,
        confidence="medium",
    )


_SHARE = (
    "Let each rank compute its part: of the rows, the classes or the sequence, and exchange what is"
    " small; or one rank alone where the others do not need it"
)
_SAME_BATCH = "Give each rank another part of the data"
_SAMPLER = "DataLoader(data, sampler=torch.utils.data.DistributedSampler(data))"


def _handed_out(size_bytes: int | None, gather: int | None) -> Iterator[Evidence]:
    if size_bytes:
        yield Evidence("results that other work may read", size_bytes, "bytes per step")
    if gather:
        yield Evidence("an all-gather of them, at the job's rate", gather, "ns per step")


def _exchange(size_bytes: int | None, gather: int | None) -> str:
    if size_bytes is None or gather is None:
        return "What the exchange takes is not in the gain: no collective here tells how long"
    return (
        f"Gathering all results ({size_bytes / 1e6:.3g} MB) would take {duration(gather)} at the"
        " rate of this job's collectives; the gain that is said lies between with it and without it"
    )


def _shared_out(rows: Vain, left: float, gather_ns: int = 0) -> tuple[Change, ...]:
    """A part of the work, and the exchange after it; never longer than all of the work."""
    on_device = len(rows.device_rows) > 0
    took = rows.device_ns if on_device else rows.host_ns
    factor = min(left + gather_ns / max(took, 1), 1.0)
    if on_device:
        return (ScaleDeviceOps(rows.device_rows, factor, left, left),)
    return (ScaleHostSpans(rows.spans, factor),)
