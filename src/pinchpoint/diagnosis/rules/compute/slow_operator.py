"""An operator takes several times what the machine needs for its work, and nothing else says why.

## What it looks for
Operators whose kernels take three times their limit or more: the bytes that they really need to
move at the attainable bandwidth, their FLOPs at the attainable rate, and the start of a kernel. Of
a table, that is the rows that are touched. Named is what would make the step at least 15 % shorter
at its limit; 5 % where the table of operators knows another way to the same result. Where no limit
is known, an operator is named if a kernel that another way avoids takes a quarter of the step. It
yields to every other finding that explains the same time.

## Why it matters
The device is busy, so that the step looks as if nothing could be won, while an operator waits for
atomic additions to one row, reads across a transposed layout or factors matrices one by one.

## How to fix it
As the finding says for the operator; the table is `diagnosis/evidence/operators.toml`.

## When to ignore it
Where the operator's work is not what its shapes say: indices that have to be far apart, say.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.causal.limits import needed_limits
from pinchpoint.analysis.causal.pieces import Cut, pieces
from pinchpoint.analysis.causal.profile import Piece, operators_of_a_step
from pinchpoint.analysis.device.short_names import short_kernel_name
from pinchpoint.analysis.replay import Change, DropDeviceOps, LimitDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.analysis.work.one_dimension import over_one_dimension
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.operators import Known, known
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES_AND_TYPES
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Mask, Rows
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops", "host_ops"),
    record=SHAPES_AND_TYPES,
    residual=True,
    advice=NO_HINT,
)

# Limits are right within a factor of two: what caches serve, which rows meet, how full a device is.
FAR_RATIO = 3.0
FAR_WHERE_AVOIDABLE_RATIO = 2.0  # where another way is known to come near the limit
LEAST_GAIN_RATIO = 0.15  # where no other way is known, only much is worth the search for one
LEAST_GAIN_WHERE_AVOIDABLE_RATIO = 0.05  # of the step: twice what a limit may be wrong by
DOMINATES_RATIO = 0.25  # of the step: so much is worth a look even where no limit is known
MOST_TOLD = 3  # the engine drops those that other findings explain


def check(trace: Trace) -> Iterator[Found]:
    """Operators far from their limits, most gain first."""
    found = operators_of_a_step(trace)
    if found.why_not is not None:
        raise NotChecked(found.why_not)
    told = 0
    for piece in sorted(found.of(Cut.OPERATOR), key=lambda piece: piece.step_at_limit_ns):
        mine = _rows(trace, piece)
        entry = _known(trace, piece, mine) if mine.any() else None
        if mine.any() and _is_far(piece, entry):
            told += 1
            yield _finding(trace, piece, mine, entry)
        elif entry is not None and _is_known_to_be_slow(piece, entry):
            told += 1
            yield _without_limit(trace, piece, mine, entry)
        if told == MOST_TOLD:
            return


def _rows(trace: Trace, piece: Piece) -> Mask:
    names = np.array([name == piece.name for name in trace.names], np.bool_)
    mine = pieces(trace, Cut.OPERATOR).device
    result: Mask = np.append(names, False)[mine] & device_ops_in_steps(trace)
    return result


def _known(trace: Trace, piece: Piece, mine: Mask) -> Known | None:
    flat = bool(over_one_dimension(trace)[mine].all())
    return known(piece.name, _longest_kernel(trace, mine), over_one_dimension=flat)


def _longest_kernel(trace: Trace, mine: Mask) -> str:
    """The kernel name that holds most of the time of these device operations."""
    ops = trace.device_ops
    assert ops is not None
    return trace.names[int(np.bincount(ops["name"][mine], ops["duration_ns"][mine]).argmax())]


def _is_far(piece: Piece, entry: Known | None) -> bool:
    avoidable = entry is not None and entry.avoidable
    if piece.times_limit is None or not piece.in_kernels:
        return False
    gain = (piece.base_ns - piece.step_at_limit_ns) / piece.base_ns
    if avoidable and piece.times_limit >= FAR_WHERE_AVOIDABLE_RATIO:
        return gain >= LEAST_GAIN_WHERE_AVOIDABLE_RATIO
    return piece.times_limit >= FAR_RATIO and gain >= LEAST_GAIN_RATIO


def _is_known_to_be_slow(piece: Piece, entry: Known) -> bool:
    """Whether its kernel, and not its operator alone, is one that another way avoids."""
    dominates = piece.device_ns >= DOMINATES_RATIO * piece.base_ns
    return dominates and piece.limit_ns is None and entry.avoidable and bool(entry.kernels)


def _without_limit(trace: Trace, piece: Piece, mine: Mask, entry: Known) -> Found:
    work = device_work(trace, mine, "in its device operations")
    assert work is not None
    where = f" in {work.place}" if work.place else ""
    kernel = short_kernel_name(_longest_kernel(trace, mine))
    return Found(
        summary=(
            f"{piece.name} takes {duration(piece.device_ns)} of the device's time a step{where},"
            f" mostly in {kernel}: {entry.why}"
        ),
        evidence=work.evidence,
        cost_ns_per_step=work.ns_per_step,
        location=work.place,
        fix=entry.instead,
        confidence="low",
    )


def _finding(trace: Trace, piece: Piece, mine: Mask, entry: Known | None) -> Found:
    work = device_work(trace, mine, "in its device operations")
    assert work is not None
    assert piece.limit_ns is not None
    kernel = short_kernel_name(_longest_kernel(trace, mine))
    where = f" in {work.place}" if work.place else ""
    return Found(
        summary=(
            f"{piece.name} takes {duration(piece.device_ns)} of the device's time a step where"
            f" {duration(piece.limit_ns)} would do{where}: {_rate(piece, kernel)}"
            + (f", because {entry.why}" if entry else "")
        ),
        evidence=(
            *work.evidence,
            Evidence("limit of its work", piece.limit_ns, "ns per step"),
            Evidence("of its limit", round(piece.limit_ns / piece.device_ns, 4), "ratio"),
            *_needs(piece),
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=_at_limit(trace, np.flatnonzero(mine)),
        location=work.place,
        fix=entry.instead if entry else "Look for another way to the same result, or compile it",
        confidence="medium" if entry else "low",
    )


def _rate(piece: Piece, kernel: str) -> str:
    ratio = (piece.limit_ns or 0) / piece.device_ns
    if piece.launches_per_call is not None and piece.launches_per_call >= MANY_IN_A_CALL:
        return f"one call launches {piece.launches_per_call:,.0f} kernels"
    share = f"{100 * ratio:.0f} %" if ratio >= 0.01 else f"{100 * ratio:.1f} %"
    return f"{kernel} runs at {share} of what the machine allows"


MANY_IN_A_CALL = 64  # launches: no operator that handles its input as a whole needs as many


def _needs(piece: Piece) -> tuple[Evidence, ...]:
    if piece.needed_bytes is None:
        return ()
    return (Evidence("has to move", piece.needed_bytes, "bytes per step"),)


def _at_limit(trace: Trace, rows: Rows) -> tuple[Change, ...]:
    """The device operations at the limit; launches that one would do for are gone."""
    limits = needed_limits(trace)
    again = limits.repeated[rows]
    at_limit = LimitDeviceOps(rows[~again], limits.at_limit_ns[rows[~again]])
    return (DropDeviceOps(rows[again]), at_limit) if again.any() else (at_limit,)
