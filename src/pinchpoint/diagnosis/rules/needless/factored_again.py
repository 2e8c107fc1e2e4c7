"""A factorisation fails in each step, and is tried again with more on the diagonal.

## What it looks for
`pinchpoint run` watches the operations of six steps after its recording, as torch's dispatcher
runs them. A try of `cholesky_ex`, `lu_factor_ex`, `ldl_factor_ex`, `inv_ex` or `solve_ex` (those
that `torch.linalg.cholesky` and its like are made of, too) has failed where nobody reads its
factors while the host reads its `info`, or the call raises, and where the same place factors the
same matrix again later in the step, with factors that are read. It is the same matrix where both go
back, by sums and copies alone, to one that the step computed. Named are places at which that is so
in four steps in turn, with the share of tries that fail. Work that is for the failed tries alone
goes with them: the matrix with more on its diagonal, the look at `info`.

Left alone are checks for positive definiteness, after which nothing is tried again, candidates that
are turned down one by one, which are different matrices, and factors of which anything is read.

## Why it matters
A factorisation that fails takes up to as much as one that succeeds, and the host waits for each
before it can go on. Covariances that are nearly singular fail in each step in the same way: with no
jitter, with 1e-8, with 1e-7, until one is large enough.

## How to fix it
Keep the jitter that was needed, and begin with it in the next step; try a smaller one only now and
then. A noise term of that size in the model, or a computation in float64, needs no tries at all.

## When to ignore it
Where the smallest jitter that will do is asked for each time, and the last digits depend on it. The
gain counts on the next matrix needing as much as the one before: where that differs from call to
call, some tries stay.
"""

from collections.abc import Iterator

from pinchpoint.analysis.replay import Change, ScaleDeviceOps, ScaleHostSpans
from pinchpoint.diagnosis.evidence.vain_work import Vain, may_be_read_elsewhere, vain, watched
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import WATCHED_RUN
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=WATCHED_RUN, advice=NO_HINT)


def check(trace: Trace) -> Iterator[Found]:
    """Places at which factorisations fail and are tried again."""
    values, told = watched(trace), False
    for work in () if values is None else values.work or ():
        of = work.of or 0
        mine = work.kind == "tries" and 0 < work.times < of
        rows = vain(trace, work, beside_modules=False) if mine else None
        if rows is None:
            continue
        told = True
        where = f" in {rows.place}" if rows.place else ""
        device = f"{duration(rows.device_ns)} of the device's time, " if rows.device_ns else ""
        yield Found(
            summary=(
                f"{work.times} of {of} factorisations a step{where} fail and are tried again"
                f" ({rows.longest}): all of them take {device}{duration(rows.host_ns)} of the"
                " host's as recorded"
            ),
            evidence=(
                Evidence("factorisations that fail", work.times, "per step"),
                Evidence("factorisations", of, "per step"),
                Evidence("of their work that stays without those", work.left_ratio, "ratio"),
                *rows.evidence,
            ),
            cost_ns_per_step=round((1 - work.left_ratio) * max(rows.device_ns, rows.host_ns)),
            changes=tuple(_changes(rows)),
            location=rows.place,
            fix="Begin with what succeeded the step before: keep the jitter that was needed",
            hint="self.jitter = jitter  # where it succeeds; the next call begins with it",
            confidence="high",
        )
    if not told and may_be_read_elsewhere(trace, ("tries",)):
        raise NotChecked(
            "threads of the program run beside its steps, and may have read what nobody else reads"
        )


def _changes(rows: Vain) -> Iterator[Change]:
    left = rows.work.left_ratio
    if len(rows.device_rows):
        yield ScaleDeviceOps(rows.device_rows, left, left, left)
    yield ScaleHostSpans(rows.spans, left)
