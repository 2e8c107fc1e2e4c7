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

## When to ignore it
Where handing out the results takes longer than computing them: the ranks then compute it all, by
intent.
"""

from collections.abc import Iterator

from pinchpoint.analysis.replay import Change, ScaleDeviceOps, ScaleHostSpans
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
            yield _found(rows, work.of or 0)


def _found(rows: Vain, ranks: int) -> Found:
    work = rows.work
    same_batch = work.shared_ratio >= SAME_BATCH_RATIO
    who = "Both ranks" if ranks == 2 else f"{ranks} ranks"
    where = f" in {rows.place}" if rows.place else ""
    device = f"{duration(rows.device_ns)} of the device's time, " if rows.device_ns else ""
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
        ),
        cost_ns_per_step=max(rows.device_ns, rows.host_ns),
        changes=_shared_out(rows, 1 / ranks),
        location=rows.place,
        fix=_SAME_BATCH if same_batch else _SHARE,
        hint=_SAMPLER if same_batch else None,
        confidence="medium",
    )


_SHARE = (
    "Let each rank compute its part: of the rows, the classes or the sequence, and exchange what is"
    " small; or one rank alone where the others do not need it"
)
_SAME_BATCH = "Give each rank another part of the data"
_SAMPLER = "DataLoader(data, sampler=torch.utils.data.DistributedSampler(data))"


def _shared_out(rows: Vain, left: float) -> tuple[Change, ...]:
    if len(rows.device_rows):
        return (ScaleDeviceOps(rows.device_rows, left, left, left),)
    return (ScaleHostSpans(rows.spans, left),)
