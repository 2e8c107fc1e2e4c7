"""An operator on a CPU takes several times what even a slow machine needs for its work.

## What it looks for
In a program without a device: operators that take three times as long as one core of a slow server
would for the bytes that they must move and the FLOPs that they must do, as their shapes say; and
that would make the step at least 15 % shorter at that rate, 10 % where the table of operators knows
why. Judged are the fastest calls with the same inputs, as the others were held up by what else the
machine had to do; where all calls took half as long again, the gain may be nothing, and where other
programs had more than half of the cores, only operators of the table are told. Where no limit
is known, an operator that the table knows to do more than is wanted wherever it runs, if it takes a
quarter of the step: then between nothing and most of it may be won. Fourier transforms are left to
`cpu-fft-length`.

Where the table of other ways has what another way to the same result takes for as many elements, an
operator is held against that: told if its fastest calls take twice as long as the other way did on
one thread of a recent server, and if 5 % of the step could be won. Of a way that fits under a
condition that no recording shows, 15 %, which may also be nothing. It yields to every finding that
explains the same time.

## Why it matters
All the time is in operators, so that the step looks as if nothing could be won, while one works on
one number at a time, in a type that the processor has no instructions for, or on a table of which
few rows change.

## How to fix it
As the finding says for the operator; the tables are `diagnosis/evidence/operators.json` and
`diagnosis/evidence/other_ways.json`.

## When to ignore it
Where the operator's work is not what its shapes say: a sort, say, passes over its input often.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pinchpoint.analysis.costs import fourier
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.analysis.run import lacked_cores
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.host_spans import HostSpans, host_spans
from pinchpoint.diagnosis.evidence.operators import Known, known_on_cpu
from pinchpoint.diagnosis.evidence.other_ways import Beside, beside_other_ways
from pinchpoint.diagnosis.finding import Evidence, Found, Small, at_most
from pinchpoint.diagnosis.record import SHAPES_AND_TYPES
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import judged, too_small
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Ints, Rows
from pinchpoint.trace.durations import duration

if TYPE_CHECKING:
    from pinchpoint.analysis.limits.on_cpu import CpuPiece


RULE = Rule(needs=("host_ops",), record=SHAPES_AND_TYPES, residual=True, advice=NO_HINT)

LEAST_GAIN_RATIO = 0.15  # of the step: where nothing is known, only much is worth the search
LEAST_GAIN_WHERE_KNOWN_RATIO = 0.10  # host time varies by a tenth between runs of one program
DOMINATES_RATIO = 0.25  # of the step: so much is worth a look even where no limit is known
LEFT_RATIO = 0.1  # at best: what another way costs is not known
# Cores differ by half in what they do in a second, so a way that is twice as fast is faster on all.
FASTER_RATIO = 2.0
SLOWER_RATIO = 1.25  # in the middle of a core like those measured and one of two thirds of its rate
LEAST_GAIN_BY_OTHER_WAY_RATIO = 0.05  # of the step: what another way takes was measured
MOST_TOLD = 3  # the engine drops those that other findings explain


def check(trace: Trace) -> Iterator[Found | Small]:
    """Operators far from what a slow machine needs, most time first."""
    if judged(trace) is None:
        return
    from pinchpoint.analysis.limits.on_cpu import cpu_pieces

    pieces = cpu_pieces(trace)
    beside = beside_other_ways(trace, pieces)
    ways = [_by_other_way(trace, one) for one in beside]
    yield from at_most(MOST_TOLD, ways)
    judged_by_ways = {name for one in beside for name in one.names}
    pieces = tuple(piece for piece in pieces if piece.name not in judged_by_ways)
    always = [one for piece in pieces if (one := _without_limit(trace, piece)) is not None]
    yield from at_most(MOST_TOLD, always)
    if any(isinstance(one, Found) for one in always) or not pieces:
        return
    if all(piece.shapes is None for piece in pieces):
        raise NotChecked("the shapes of the inputs are not recorded")
    slowed = sum(p.ns_per_step for p in pieces) / max(sum(p.fastest_ns_per_step for p in pieces), 1)
    found = (_told(trace, piece, slowed) for piece in pieces if piece.name not in fourier.NAMES)
    yield from at_most(MOST_TOLD, found)


def _told(trace: Trace, piece: "CpuPiece", slowed_ratio: float) -> Found | Small | None:
    from pinchpoint.analysis.limits.on_cpu import FAR_RATIO, SLOWED_RATIO

    limit_ns, step_ns = piece.limit_ns, steps(trace).typical_ns
    fastest_ns = piece.fastest_ns_per_step
    if limit_ns is None or not step_ns or fastest_ns < FAR_RATIO * limit_ns:
        return None
    entry = known_on_cpu(piece.name)
    if entry is None and lacked_cores(trace):
        return None  # all of its threads had to wait for a core, in its fastest calls, too
    least = LEAST_GAIN_WHERE_KNOWN_RATIO if entry else LEAST_GAIN_RATIO
    won_ns = slowed_ratio * (fastest_ns - limit_ns)
    if won_ns < least * step_ns:
        return Small(won_ns / step_ns, least)
    spans = _spans(trace, piece.rows)
    if spans is None:
        return None
    if small := too_small(trace, spans):
        return small
    return _finding(trace, piece, spans, entry, is_full=slowed_ratio >= SLOWED_RATIO)


def _by_other_way(trace: Trace, one: Beside) -> Found | Small | None:
    """An operator beside another way whose time is known."""
    step_ns, fastest_ns, way = steps(trace).typical_ns, one.fastest_ns_per_step, one.way
    if not step_ns or fastest_ns < FASTER_RATIO * one.needs_ns_per_step:
        return None
    least = LEAST_GAIN_RATIO if way.only_where else LEAST_GAIN_BY_OTHER_WAY_RATIO
    here = SLOWER_RATIO * one.needs_ns_per_step / fastest_ns
    # Where others have the cores, or cores are slow, both ways take longer.
    left = min(max(here, way.ns_per_element / way.operator_ns_per_element), 1.0)
    won_ns = (1 - left) * one.ns_per_step
    if won_ns < least * step_ns:
        return Small(won_ns / step_ns, least)
    spans = _spans(trace, one.rows)
    if spans is None:
        return None
    if small := too_small(trace, spans):
        return small
    whole_ns = per_step(trace, int(_took(trace, spans).sum()))
    faster = (ScaleHostSpans(spans.rows, 1 - won_ns / max(whole_ns, one.ns_per_step)),)
    only = f", {way.only_where}" if way.only_where else ""
    return Found(
        summary=(
            f"{' and '.join(one.names)} {'take' if len(one.names) > 1 else 'takes'}"
            f" {duration(one.ns_per_step)} a step{spans.where},"
            f" {one.ns_per_element:.3g} ns for each element in the fastest calls, where another way"
            f" takes {way.ns_per_element:.3g} on one core of a recent server{only}: {way.why}"
        ),
        evidence=(
            *spans.evidence,
            Evidence("as its fastest calls", fastest_ns, "ns per step"),
            Evidence("another way", one.needs_ns_per_step, "ns per step"),
        ),
        cost_ns_per_step=one.ns_per_step,
        changes=() if only else faster,
        at_best=faster if only else (),
        location=spans.place,
        fix=way.instead,
        confidence="low" if only else "medium",
    )


def _took(trace: Trace, spans: HostSpans) -> Ints:
    assert trace.host_ops is not None
    return trace.host_ops["duration_ns"][spans.rows].astype(np.int64)


def _without_limit(trace: Trace, piece: "CpuPiece") -> Found | Small | None:
    entry, step_ns = known_on_cpu(piece.name), steps(trace).typical_ns
    if piece.limit_ns is not None or entry is None or not entry.always or not step_ns:
        return None
    spans = _spans(trace, piece.rows)
    if spans is None:
        return None
    if small := too_small(trace, spans):
        return small
    took_ns = max(piece.ns_per_step, spans.ns_per_step)  # with the operators inside
    if took_ns < DOMINATES_RATIO * step_ns:
        return Small(took_ns / step_ns, DOMINATES_RATIO)
    return Found(
        summary=f"{piece.name} takes {duration(took_ns)} a step{spans.where}: {entry.why}",
        evidence=spans.evidence,
        cost_ns_per_step=took_ns,
        at_best=(ScaleHostSpans(spans.rows, LEFT_RATIO),),
        location=spans.place,
        fix=entry.instead,
        confidence="low",
    )


def _spans(trace: Trace, rows: Rows) -> HostSpans | None:
    host = trace.host_ops
    assert host is not None
    wanted = np.zeros(len(host), np.bool_)
    wanted[rows] = True
    return host_spans(trace, wanted, "in its calls")


def _finding(
    trace: Trace, piece: "CpuPiece", spans: HostSpans, entry: Known | None, *, is_full: bool
) -> Found:
    limit_ns, took_ns = piece.limit_ns, piece.ns_per_step
    assert limit_ns is not None
    whole_ns = per_step(trace, int(_took(trace, spans).sum()))
    won_ns = took_ns * (1 - limit_ns / piece.fastest_ns_per_step)
    faster = (ScaleHostSpans(spans.rows, 1 - won_ns / max(whole_ns, took_ns)),)
    fastest = f", {duration(piece.fastest_ns_per_step)} in its fastest calls" if is_full else ""
    return Found(
        summary=(
            f"{piece.name} takes {duration(took_ns)} a step{spans.where}{fastest}, where one core"
            f" of a slow server would take {duration(limit_ns)} for its bytes and FLOPs"
            + (f": {entry.why}" if entry else "")
        ),
        evidence=(
            *spans.evidence,
            Evidence("as its fastest calls", piece.fastest_ns_per_step, "ns per step"),
            Evidence("limit of its work on a slow core", limit_ns, "ns per step"),
            Evidence("shapes of the calls that take most", piece.shapes or "", "name"),
        ),
        cost_ns_per_step=took_ns,
        changes=() if is_full else faster,
        at_best=faster if is_full else (),
        location=spans.place,
        fix=entry.instead if entry else _ANOTHER_WAY,
        confidence="medium" if entry and not is_full else "low",
    )


_ANOTHER_WAY = "Look for another way to the same result, or another type or layout of its inputs"
