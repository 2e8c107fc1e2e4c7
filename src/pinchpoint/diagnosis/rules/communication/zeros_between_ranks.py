"""Most of what ranks send each other is rows of zeros.

## What it looks for
`pinchpoint run` looks at what a rank of a job on CPUs sends in one step after its recording, and at
the arguments of its other operations. Told are collectives and sends of which three rows in ten or
more hold nothing but zeros, with the time of the step that passes in them, and products and
element-by-element work on as many rows, as far as their rows are zeros, too.

## Why it matters
Zeros take as long to send and to multiply as other numbers. Buffers hold them where each part gets
as much room as the fullest one needs (experts, buckets, padded sequences), or where a gradient has
rows for all that a table holds and a batch touches few of them.

## How to fix it
Send what is there: `all_to_all_single` takes sizes for each rank, sparse gradients and lists of
rows with their numbers go without the others. Or give each part the room that the mean needs, with
some to spare (a capacity factor), and let what does not fit go elsewhere.

## When to ignore it
Where the zeros are rare in other steps: one is looked at.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pinchpoint.analysis.replay import RemoveHostTime, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step
from pinchpoint.diagnosis.evidence.host_collectives import (
    HostCalls,
    issued_calls,
    shortest_at_place,
)
from pinchpoint.diagnosis.evidence.vain_work import rows_of, watched
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import WATCHED_RUN
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Floats, Ints, Rows
from pinchpoint.trace.durations import duration
from pinchpoint.trace.run_values import VainWork

RULE = Rule(
    needs=("host_ops",),
    record=WATCHED_RUN,
    parent="host-waits",
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "torchrun train.py" "torchrun train_fixed.py"',
)
_ISSUES = "c10d::"


@dataclass(frozen=True, eq=False)
class _Sent:
    """Calls of the backend that send such rows; ``ratio`` is the share of zeros in each."""

    calls: HostCalls
    ratio: Floats

    def less(self, trace: Trace, ns: Ints) -> RemoveHostTime:
        """Without the part for zeros of so much of each call."""
        host = trace.host_ops
        assert host is not None
        end = host.end_ns[self.calls.rows]
        return RemoveHostTime(end - (ns * self.ratio).astype(np.int64), end)


def check(trace: Trace) -> Iterator[Found]:
    """Collectives and sends of rows of zeros, with the work on them."""
    values, host = watched(trace), trace.host_ops
    noted = [one for one in (values.work or ()) if one.kind == "zeros"] if values else []
    sends = [one for one in noted if _is_sent(one)]
    if not sends or host is None or not len(judged_steps(trace)):
        return
    sent = _sent(trace, sends)
    if sent is None:
        raise NotChecked("the steps send other messages than the one that was looked at")
    work = [(one, _rows(trace, one)) for one in noted if not _is_sent(one)]
    scaled = tuple(ScaleHostSpans(rows, one.left_ratio) for one, rows in work if len(rows))
    took = host["duration_ns"]
    in_vain = sum(float(took[rows].sum()) * one.read_ratio for one, rows in work)
    sending_ns = round(per_step(trace, int((sent.calls.alone_ns * sent.ratio).sum())))
    work_ns = round(per_step(trace, int(in_vain)))
    first = max(sends, key=lambda one: (not one.backward, one.times * one.read_ratio))
    place = Location(*first.places[0]) if first.places else None
    share = round(100 * float(sent.ratio.mean()))
    yield Found(
        summary=(
            f"{share} % of the rows that ranks send each other{f' in {place}' if place else ''}"
            f" hold nothing but zeros: {duration(sending_ns)} a step to send these, and"
            f" {duration(work_ns)} of work on as many rows"
        ),
        evidence=(
            Evidence("of the rows that are sent, zeros", share / 100, "ratio"),
            Evidence("calls that send them", per_step(trace, len(sent.calls.rows)), "per step"),
            Evidence("to send them, waiting included", sending_ns, "ns per step"),
            Evidence("work on rows of zeros", work_ns, "ns per step"),
        ),
        cost_ns_per_step=sending_ns + work_ns,
        changes=(sent.less(trace, shortest_at_place(trace, sent.calls)), *scaled),
        at_best=(sent.less(trace, sent.calls.alone_ns), *scaled),
        location=place,
        confidence="medium",
        fix="Send the rows that hold something (sizes for each rank in all_to_all_single, sparse"
        " gradients), or give each part the room that the mean needs with some to spare",
    )


def _rows(trace: Trace, one: VainWork) -> Rows:
    """By their order among those of their name: buffers differ in size from step to step."""
    return rows_of(trace, [replace(op, shapes=None) for op in one.operations])


def _is_sent(one: VainWork) -> bool:
    return any(op.name.startswith(_ISSUES) for op in one.operations)


def _sent(trace: Trace, sends: list[VainWork]) -> _Sent | None:
    """The backend's calls for what was issued; None where these are not as many."""
    calls = issued_calls(trace)
    if calls is None:
        return None
    ratio = np.zeros(len(calls.issued), np.float64)
    for one in sends:
        ratio[np.isin(calls.issued, _rows(trace, one))] = one.read_ratio
    mine = ratio > 0
    return _Sent(calls.made.of(mine), ratio[mine]) if mine.any() else None
