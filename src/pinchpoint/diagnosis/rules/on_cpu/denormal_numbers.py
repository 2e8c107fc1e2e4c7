"""Numbers next to zero make operators slow that compute with them.

## What it looks for
`pinchpoint run` looks at the arguments of operators in one step after its recording. Where some of
their numbers are next to zero (below 1e-31 in single precision, but not zero), it runs the operator
on copies of its arguments as they are, and on copies with zeros in their place. Told are operators
that took at least half as long again with these numbers, in so much of the step as they take in the
recording. Those that were quick in the recording, and slow later, are left.

## Why it matters
A floating-point number below the smallest normal one (1.2e-38, a *denormal* or *subnormal* number)
is computed by a slow path of the processor, which takes many times as long for it. A state that
decays and gets nothing new, as of a filter, an average or an echo on silent input, falls into them
within some hundred steps and stays there: the program starts fast and gets slow.

## How to fix it
`torch.set_flush_denormal(True)` before the first operator: such numbers are zero then. Or keep the
state above them: a floor that is added (1e-20 where values are around 1), or zeros where it is
small.

## When to ignore it
Where results need numbers that small.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.evidence.vain_work import rows_of_note, watched
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import WATCHED_RUN
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NotChecked, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import judged, too_small
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.durations import duration
from pinchpoint.trace.run_values import VainWork

RULE = Rule(needs=("host_ops",), record=WATCHED_RUN)


@dataclass(frozen=True, eq=False)
class _Slow:
    work: VainWork
    rows: Rows
    ns: int  # of the judged steps


def check(trace: Trace) -> Iterator[Found | Small]:
    """Operators that zeros in place of such numbers made quick."""
    values, host = watched(trace), trace.host_ops
    tiny = [one for one in (values.work or ()) if one.kind == "tiny"] if values else []
    if not tiny or host is None or judged(trace) is None:
        return
    took = host["duration_ns"]
    there = [(one, rows) for one in tiny if len(rows := rows_of_note(trace, one))]
    slow = [
        _Slow(one, rows, int(took[rows].sum()))
        for one, rows in there
        if np.median(took[rows]) >= one.tried_ns * one.left_ratio**0.5  # between slow and quick
    ]
    if not slow:
        if there:
            raise NotChecked(
                "operators that numbers next to zero make slow were not yet slow in it"
            )
        return
    chosen = np.zeros(len(host), np.bool_)
    chosen[np.concatenate([one.rows for one in slow])] = True
    spans = host_spans(trace, chosen, "operators that such numbers make slow")
    if spans is None:
        return
    if small := too_small(trace, spans):
        yield small
        return
    worst = max(slow, key=lambda one: one.ns * (1 - one.work.left_ratio))
    name, work = worst.work.operations[0].name, worst.work
    times = 1 / max(work.left_ratio, 1e-3)  # a trial that took no time would be any number
    place = Location(*work.places[0]) if work.places else spans.place
    yield Found(
        summary=(
            f"{name}{f' in {place}' if place else ''} takes {times:.3g} × as long with its numbers"
            f" as with zeros for those next to zero (denormal ones, {100 * work.read_ratio:.2g} %"
            f" of them), tried on its own arguments; {duration(spans.ns_per_step)} a step pass in"
            f" {_counted(len(slow))}"
        ),
        evidence=(
            *spans.evidence,
            Evidence("one call of the worst, in the trial", work.tried_ns, "ns"),
            Evidence("with zeros", round(work.tried_ns * work.left_ratio), "ns"),
            Evidence("of the numbers that were looked at, next to zero", work.read_ratio, "ratio"),
        ),
        cost_ns_per_step=spans.ns_per_step,
        changes=tuple(ScaleHostSpans(one.rows, one.work.left_ratio) for one in slow),
        location=place,
        fix="Let such numbers be zero, or keep the state above them: add a floor",
        hint="torch.set_flush_denormal(True)  # before the first operator; or state.add_(1e-20)",
        confirm=ANY_PROGRAM,
        confidence="high",
    )


def _counted(operators: int) -> str:
    return "such an operator" if operators == 1 else f"{operators} such operators"
