"""An operator takes several times what the machine needs for its work, and nothing else says why.

## What it looks for
Operators whose kernels and copies take three times their limit or more: the bytes that they really
need to move at the attainable bandwidth, their FLOPs at the attainable rate, and the start of a
kernel. Of a table, that is the rows that are touched. Named is what would make the step at least
15 % shorter at its limit; 5 % where the table of operators knows another way to the same result.
Operators that stream tensors in two orders are far at 1.75 times their limit, and named from 10 %
on. Where no limit is known, an operator is named if it takes a quarter of the step, and that in a
kernel that another way avoids, or for fifty passes over what it reads; from a tenth of the step on
if the table says what makes it slow wherever it runs, and then between nothing and all but one pass
may be won. Where the table says that calls around an operator make it do the same anew, the step
without it is told. Rows that are read at random places of a table are undecided up to three times
what a gather takes for as many: what a device's memory serves of such reads is not known. Products
in a wide number format are held against what the device's matrix units do. It yields to every other
finding that explains the same time. Collectives are left out: of one rank, they may wait.

## Why it matters
The device is busy, so that the step looks as if nothing could be won, while an operator waits for
atomic additions to one row, reads across a transposed layout or factors matrices one by one.

## How to fix it
As the finding says for the operator; the table is `diagnosis/evidence/operators.json`.

## When to ignore it
Where the operator's work is not what its shapes say: indices that have to be far apart, say.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from msgspec import structs

from pinchpoint.analysis.causal.limits import needed_limits
from pinchpoint.analysis.causal.pieces import Cut, operators_of_device_ops
from pinchpoint.analysis.causal.profile import Piece, off_path
from pinchpoint.analysis.device.short_names import short_kernel_name
from pinchpoint.analysis.host.ancestry import parents
from pinchpoint.analysis.limits.roofs import roofs
from pinchpoint.analysis.memory.shortage import size
from pinchpoint.analysis.replay import Change, DropDeviceOps, LimitDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.analysis.work.one_dimension import over_one_dimension
from pinchpoint.analysis.work.pointwise_chains import (
    in_different_orders,
    launched_calls,
)
from pinchpoint.diagnosis.evidence.calls_inside import without_calls_inside
from pinchpoint.diagnosis.evidence.device_work import busiest_place, device_work
from pinchpoint.diagnosis.evidence.operators import Known, known
from pinchpoint.diagnosis.evidence.passes import pass_ns, passes
from pinchpoint.diagnosis.evidence.wide_formats import in_a_wide_format
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small, at_most
from pinchpoint.diagnosis.record import COUNTERS, SHAPES_AND_TYPES
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import DeviceKind, Trace
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
# Dense elementwise kernels reach 0.9 of the memory's bandwidth, awkward ones 0.6; a limit counts
# 0.88, so below half of the bandwidth is beyond 1.75 times the limit.
FAR_ACROSS_LAYOUTS_RATIO = 1.75
LEAST_GAIN_ACROSS_LAYOUTS_RATIO = 0.10  # one transposing copy may be wanted
LEAST_GAIN_RATIO = 0.15  # where no other way is known, only much is worth the search for one
LEAST_GAIN_WHERE_AVOIDABLE_RATIO = 0.05  # of the step: twice what a limit may be wrong by
DOMINATES_RATIO = 0.25  # of the step: so much is worth a look even where no limit is known
KNOWN_RATIO = 0.10  # of the step: the same where the table says what makes it slow wherever it runs
# Of an operator without a model: a radix sort passes over its input 8 times and more, a selection
# less; more than three times 16 passes is no matter of the algorithm.
PASSES = 16
MOST_TOLD = 3  # the engine drops those that other findings explain


def check(trace: Trace) -> Iterator[Found | Small]:
    """Operators far from their limits, most gain first."""
    found = off_path(trace, Cut.OPERATOR)
    if found.why_not is not None:
        raise NotChecked(found.why_not)
    pieces = list(_of_one_cause(trace, found.of(Cut.OPERATOR)))
    said: list[Found | Small] = list(at_most(MOST_TOLD, (_told(trace, *of) for of in pieces)))
    said += in_a_wide_format(trace, found.base_ns)
    if not any(isinstance(one, Found) for one in said):
        for piece, mine, entry in pieces:
            _not_known(trace, piece, mine, entry)
        yield from filter(None, (_too_small(piece, entry) for piece, _, entry in pieces))
    yield from said


def _not_known(trace: Trace, piece: Piece, mine: Mask, entry: Known | None) -> None:
    """Says that it is undecided, of an operator whose attainable rate nobody knows."""
    if entry is None or not entry.rate_unknown or piece.device_ns < KNOWN_RATIO * piece.base_ns:
        return
    moved, machine, rate = piece.needed_bytes, roofs(trace), ""
    if moved and machine is not None and machine.memory is not None:
        reached = moved / piece.device_ns * 1e9 / machine.memory.per_s
        rate = f", {size(moved)} at {100 * reached:.0f} % of the memory's peak"
    raise NotChecked(
        f"{piece.name} takes {duration(piece.device_ns)} of a step of {duration(piece.base_ns)},"
        f" as {entry.why}{rate}; what such reads could reach on this device is not known",
        COUNTERS,
        fits=True,
    )


def _of_one_cause(
    trace: Trace, pieces: Sequence[Piece]
) -> Iterator[tuple[Piece, Mask, Known | None]]:
    """Operators with their device operations, most gain first; those that the table explains by one
    entry, far from their limits in one function, are one: the three passes of a transform there
    and back."""
    alone: list[tuple[Piece, Mask, Known | None]] = []
    together: dict[object, list[tuple[Piece, Mask, Known | None]]] = {}
    for piece in pieces:
        mine = _rows(trace, piece)
        if not mine.any() or _is_between_ranks(trace, mine):
            continue
        one = piece, mine, _known(trace, piece, mine)
        cause = _cause(trace, *one)
        (together.setdefault(cause, []) if cause else alone).append(one)
    found = [*alone, *map(_as_one, together.values())]
    yield from sorted(found, key=lambda one: one[0].step_at_limit_ns)


def _cause(trace: Trace, piece: Piece, mine: Mask, entry: Known | None) -> object:
    """What tells an operator's cause from another one: its entry and its function, if it is far."""
    if entry is None or piece.times_limit is None or piece.times_limit < _far_ratio(entry):
        return None
    place = _place_beyond(trace, mine)
    return (entry.why, place.file, place.function) if place else None


def _as_one(of: list[tuple[Piece, Mask, Known | None]]) -> tuple[Piece, Mask, Known | None]:
    """Several operators as if they were one: what each would win alone adds up."""
    if len(of) == 1:
        return of[0]
    of = sorted(of, key=lambda one: one[0].step_at_limit_ns)
    all_of_it = [piece for piece, _, _ in of]
    first = all_of_it[0]
    piece = replace(
        first,
        name=f"{', '.join(piece.name for piece in all_of_it[:-1])} and {all_of_it[-1].name}",
        calls=sum(piece.calls for piece in all_of_it),
        host_ns=sum(piece.host_ns for piece in all_of_it),
        device_ns=sum(piece.device_ns for piece in all_of_it),
        limit_ns=sum(piece.limit_ns or 0 for piece in all_of_it),
        needed_bytes=None,
        step_at_limit_ns=max(
            first.base_ns - sum(piece.base_ns - piece.step_at_limit_ns for piece in all_of_it), 0
        ),
        launches_per_call=None,
    )
    return piece, np.logical_or.reduce([mine for _, mine, _ in of]), of[0][2]


def _told(trace: Trace, piece: Piece, mine: Mask, entry: Known | None) -> Found | None:
    if _is_far(piece, entry):
        return _finding(trace, piece, mine, entry)
    share = piece.device_ns / piece.base_ns
    if entry is not None and entry.inside and share >= LEAST_GAIN_WHERE_AVOIDABLE_RATIO:
        gone = without_calls_inside(trace, piece.name, entry.makes_it)
        if gone is not None:
            one = _without_limit(trace, piece, mine, entry.why, entry.instead, gone)
            return structs.replace(one, confidence="medium")
    if entry is not None and entry.rate_unknown:
        return None
    if piece.limit_ns is None and entry is not None and entry.always and share >= KNOWN_RATIO:
        why = f"{entry.why}; how much of it another way saves is not known"
        most = (LimitDeviceOps(np.flatnonzero(mine), pass_ns(trace, mine)),)
        return _without_limit(trace, piece, mine, why, entry.instead, at_best=most)
    if piece.limit_ns is not None or share < DOMINATES_RATIO:
        return None
    if entry is not None and entry.avoidable and entry.kernels:
        return _without_limit(trace, piece, mine, entry.why, entry.instead)
    times = passes(trace, mine)
    if times is None or times < FAR_RATIO * PASSES:
        return None
    why = f"{times:,.0f} times what one pass over what it reads would take"
    return _without_limit(trace, piece, mine, why, _ANOTHER_WAY, _one_after_another(trace, mine))


def _one_after_another(trace: Trace, mine: Mask) -> tuple[Change, ...]:
    return (LimitDeviceOps(np.flatnonzero(mine), PASSES * pass_ns(trace, mine)),)


def _rows(trace: Trace, piece: Piece) -> Mask:
    mine = operators_of_device_ops(trace) == trace.names.index(piece.name)
    result: Mask = mine & device_ops_in_steps(trace)
    return result


def _is_between_ranks(trace: Trace, mine: Mask) -> bool:
    """Whether most of the device time is in collectives."""
    ops = trace.device_ops
    assert ops is not None
    took, shared = ops["duration_ns"], mine & (ops["kind"] == DeviceKind.COLLECTIVE)
    return bool(2 * took[shared].sum() > took[mine].sum())


def _known(trace: Trace, piece: Piece, mine: Mask) -> Known | None:
    flat = bool(over_one_dimension(trace)[mine].all())
    across = _goes_across(trace, mine)
    kernel = _longest_kernel(trace, mine)
    around = _around(trace, mine)
    return known(piece.name, kernel, around=around, over_one_dimension=flat, across_layouts=across)


def _around(trace: Trace, mine: Mask) -> frozenset[str]:
    """Names of the operators that the longest of these device operations was started in."""
    ops, host = trace.device_ops, trace.host_ops
    assert ops is not None
    if host is None:
        return frozenset()
    rows = np.flatnonzero(mine)
    launcher = ops.filled("host_op", len(host)).astype(np.intp)[rows]
    at, parent, found = int(launcher[ops["duration_ns"][rows].argmax()]), parents(host), set()
    while at < len(host):
        found.add(trace.names[int(host["name"][at])])
        at = int(parent[at])
    return frozenset(found)


def _goes_across(trace: Trace, mine: Mask) -> bool:
    """Whether most of what these operations take beyond their limit is in calls with operands in
    two orders."""
    ops = trace.device_ops
    assert ops is not None
    beyond = ops["duration_ns"][mine] - needed_limits(trace).at_limit_ns[mine]
    across = launched_calls(trace).where(in_different_orders)[mine]
    return bool(2 * beyond[across].sum() > beyond.sum())


def _longest_kernel(trace: Trace, mine: Mask) -> str:
    """The kernel name that holds most of the time of these device operations."""
    ops = trace.device_ops
    assert ops is not None
    return trace.names[int(np.bincount(ops["name"][mine], ops["duration_ns"][mine]).argmax())]


def _is_far(piece: Piece, entry: Known | None) -> bool:
    if piece.times_limit is None:
        return False
    far, least = _far_ratio(entry), _least_gain_ratio(entry)
    gain = _gain_ratio(piece)
    longest = piece.times_limit >= FAR_RATIO and gain >= LEAST_GAIN_RATIO
    return longest or (piece.times_limit >= far and gain >= least)


def _too_small(piece: Piece, entry: Known | None) -> Small | None:
    """What to say of an operator that is slow, by its limit or by what is known of it, and no
    finding."""
    if piece.times_limit is not None:
        far = piece.times_limit >= _far_ratio(entry)
        return Small(_gain_ratio(piece), _least_gain_ratio(entry)) if far else None
    always = entry is not None and entry.always and not entry.rate_unknown
    return Small(piece.device_ns / piece.base_ns, KNOWN_RATIO) if always else None


def _gain_ratio(piece: Piece) -> float:
    return (piece.base_ns - piece.step_at_limit_ns) / piece.base_ns


def _least_gain_ratio(entry: Known | None) -> float:
    if entry is not None and entry.across_layouts:
        return LEAST_GAIN_ACROSS_LAYOUTS_RATIO
    avoidable = entry is not None and entry.avoidable
    return LEAST_GAIN_WHERE_AVOIDABLE_RATIO if avoidable else LEAST_GAIN_RATIO


def _far_ratio(entry: Known | None) -> float:
    if entry is not None and entry.across_layouts:
        return FAR_ACROSS_LAYOUTS_RATIO
    return FAR_WHERE_AVOIDABLE_RATIO if entry is not None and entry.avoidable else FAR_RATIO


_ANOTHER_WAY = "Look for another way to the same result, or compile it"


def _without_limit(
    trace: Trace,
    piece: Piece,
    mine: Mask,
    why: str,
    instead: str,
    changes: tuple[Change, ...] = (),
    at_best: tuple[Change, ...] = (),
) -> Found:
    work = device_work(trace, mine, "in its device operations")
    assert work is not None
    where = f" in {work.place}" if work.place else ""
    kernel = short_kernel_name(_longest_kernel(trace, mine))
    return Found(
        summary=(
            f"{piece.name} takes {duration(piece.device_ns)} of the device's time a step{where},"
            f" mostly in {kernel}: {why}"
        ),
        evidence=work.evidence,
        cost_ns_per_step=work.ns_per_step,
        changes=changes,
        at_best=at_best,
        location=work.place,
        fix=instead,
        confidence="low",
    )


def _finding(trace: Trace, piece: Piece, mine: Mask, entry: Known | None) -> Found:
    work = device_work(trace, mine, "in its device operations")
    assert work is not None
    assert piece.limit_ns is not None
    kernel = short_kernel_name(_longest_kernel(trace, mine))
    place = _place_beyond(trace, mine) or work.place
    where = f" in {place}" if place else ""
    return Found(
        summary=(
            f"{piece.name} take{'' if ' ' in piece.name else 's'} {duration(piece.device_ns)}"
            " of the device's time a step where"
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
        location=place,
        fix=entry.instead if entry else _ANOTHER_WAY,
        confidence="medium" if entry else "low",
    )


def _place_beyond(trace: Trace, mine: Mask) -> Location | None:
    """Where most of the time beyond the limit is spent: not each call of an operator is slow."""
    ops = trace.device_ops
    assert ops is not None
    rows = np.flatnonzero(mine)
    beyond = (ops["duration_ns"][rows] - needed_limits(trace).at_limit_ns[rows]).astype(np.int64)
    nowhere = len(trace.host_ops or ())
    return busiest_place(trace, ops.filled("host_op", nowhere)[rows].astype(np.intp), beyond)[0]


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
