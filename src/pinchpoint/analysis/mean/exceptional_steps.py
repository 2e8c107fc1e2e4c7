"""What each exceptional step takes beyond a usual one, and what fills that time.

The accounting is that of every step (``accounting.breakdown``): the parts of the exceptional step
less the mean parts of the usual steps of its kind. The part that grew most is the cause; the place
that holds most of it is looked up in the pieces that the part is made of.
"""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.source_lines import Place, place, places
from pinchpoint.analysis.host.timeline import NO_ROW, host_rows
from pinchpoint.analysis.mean.step_kinds import (
    SAME_WORK_RATIO,
    StepKind,
    backward_per_step,
    launches_per_step,
    step_kinds,
)
from pinchpoint.analysis.steps.steps import OUTLIER_FLOOR_RATIO, steps
from pinchpoint.analysis.time.accounting import StepPart, breakdown
from pinchpoint.analysis.time.gaps import gaps, host_did
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import Trace, once_per_trace

Times = NDArray[np.int64]
Rows = NDArray[np.int64]

MARKER = regex(r"ProfilerStep#?\d*$")

# What is slow because a program or its recording has just begun: caches are cold, code is loaded,
# memory is allocated, the profiler warms up. A save, a collection or a late batch is none of that.
_OF_A_BEGINNING = (
    GapKind.AFTER_SYNC,
    GapKind.SYNC,
    GapKind.DISPATCH,
    GapKind.PYTHON,
    GapKind.HOST_COMPUTE,
    GapKind.GRAPH_LAUNCH,
    GapKind.MALLOC,
    GapKind.COPY_CALL,
    GapKind.COMPILE,
    GapKind.CODE_LOAD,
    GapKind.AUTOGRAD,
    GapKind.DEPENDENCY,
    GapKind.START_LATENCY,
    GapKind.PROFILER,
    GapKind.UNRECORDED,
)


@dataclass(frozen=True, eq=False)
class ExceptionalStep:
    """One exceptional step; ``part_ns`` of its ``excess_ns`` are the part that grew most."""

    step: int  # position in ``steps(trace)``
    excess_ns: int  # beyond a usual step of its kind
    part: StepPart
    part_ns: int
    kind: GapKind | None  # of idle or host time; None where device work grew
    place: Place
    name: str | None  # of the call, operator, function or kernel that holds most of it
    at_ns: int  # where that begins
    starting: bool  # slow because the program or its recording has just begun
    more_launches: bool  # clearly more than a usual step
    forward_only: bool  # more device work than usual, and no more of a backward pass: evaluation
    start_ns: Times  # the stretches of time that the part is made of in this step
    end_ns: Times


@dataclass(frozen=True, eq=False)
class _Pieces:
    """What parts are made of, with the step each lies in; arrays of one length."""

    step: Rows
    start_ns: Times
    end_ns: Times
    row: Rows  # of host_rows, or NO_ROW
    name: Rows  # position in trace.names, or NO_ROW
    where: Rows  # number of the place; pieces with the same number are at one place


@once_per_trace
def exceptional_steps(trace: Trace) -> tuple[ExceptionalStep, ...]:
    """All complete steps that are much longer than the usual ones of their kind, in order."""
    kinds, found = step_kinds(trace), steps(trace)
    pieces: dict[GapKind | None, _Pieces] = {}
    lasting = found.end_ns - found.start_ns
    out: list[ExceptionalStep] = []
    for step, like in zip(kinds.exceptions.tolist(), kinds.like.tolist(), strict=True):
        kind = kinds.kinds[like]
        excess = int(lasting[step]) - _mean(lasting, kind)
        excess -= _made_up_for(lasting, step, kind, kinds.exceptions)
        if excess <= OUTLIER_FLOOR_RATIO * kind.median_ns:
            continue
        one = _explained(trace, step, excess, kind, pieces)
        if one.starting or excess > kind.far_ns:
            out.append(one)
    return tuple(out)


def _mean(lasting: Times, kind: StepKind) -> int:
    return round(float(lasting[kind.steps].mean()))


def _made_up_for(lasting: Times, step: int, kind: StepKind, exceptions: NDArray[np.intp]) -> int:
    """What the steps beside it are shorter than usual: work that only moved from step to step."""
    usual, saved = _mean(lasting, kind), 0
    for beside in (step - 1, step + 1):
        if 0 < beside < len(lasting) and (beside in kind.steps or beside in exceptions):
            saved += max(usual - int(lasting[beside]), 0)
    return saved if saved > OUTLIER_FLOOR_RATIO * usual else 0


def _begins(trace: Trace, step: int, kind: StepKind) -> bool:
    """Whether all complete steps up to this one are longer than usual."""
    found = steps(trace)
    before = np.flatnonzero(found.complete[: step + 1])
    lasting = (found.end_ns - found.start_ns)[before]
    return bool((lasting > (1 + OUTLIER_FLOOR_RATIO) * kind.median_ns).all())


def _explained(
    trace: Trace, step: int, excess: int, kind: StepKind, known: dict[GapKind | None, _Pieces]
) -> ExceptionalStep:
    parts = breakdown(trace)
    grown = parts.by_step[step] - parts.by_step[kind.steps].mean(axis=0)
    most = int(np.argmax(grown))
    part = parts.parts[most]
    of_kind = _gap_kind(part)
    if of_kind not in known:
        known[of_kind] = _device_pieces(trace) if of_kind is None else _host_pieces(trace, of_kind)
    pieces = known[of_kind]
    inside = np.flatnonzero(pieces.step == step)
    where, name, at_ns = _busiest(trace, pieces, inside, kind.steps)
    at_first = _begins(trace, step, kind) and (of_kind is None or of_kind in _OF_A_BEGINNING)
    more = bool(launches_per_step(trace)[step] > SAME_WORK_RATIO * kind.launches)
    return ExceptionalStep(
        step=step,
        excess_ns=excess,
        part=part,
        part_ns=min(round(float(grown[most])), excess),
        kind=of_kind,
        place=where,
        name=name,
        at_ns=at_ns if at_ns is not None else int(steps(trace).start_ns[step]),
        starting=at_first,
        more_launches=more,
        forward_only=of_kind is None and more and _no_more_backward(trace, step, kind),
        start_ns=pieces.start_ns[inside],
        end_ns=pieces.end_ns[inside],
    )


def _gap_kind(part: StepPart) -> GapKind | None:
    """The kind of idle or host time that a part is; operators on the host are dispatching."""
    if part.group not in ("idle", "host"):
        return None
    spelt = part.id.removeprefix(part.group + "-")
    return next((k for k in GapKind if k.id == f"idle-{spelt}"), GapKind.DISPATCH)


def _host_pieces(trace: Trace, kind: GapKind) -> _Pieces:
    """Idle time of one kind; without a device what the thread of the steps did of that kind."""
    rows = np.append(host_rows(trace).name.astype(np.int64), NO_ROW)
    ops = trace.device_ops
    if ops is not None and len(ops):
        found = gaps(trace)
        of = np.flatnonzero(found.kind == kind)
        row = found.row[of]
        where = _numbered(trace, row, rows[row])
        return _Pieces(found.step[of], found.start_ns[of], found.end_ns[of], row, rows[row], where)
    windows = steps(trace)
    thread = np.full(len(windows), windows.thread, np.int64)
    did = host_did(trace, thread, windows.start_ns, windows.end_ns)
    of = np.flatnonzero(activity(trace)[did.row] == kind)
    row = did.row[of]
    where = _numbered(trace, row, rows[row])
    return _Pieces(did.asked[of], did.start_ns[of], did.end_ns[of], row, rows[row], where)


def _device_pieces(trace: Trace) -> _Pieces:
    """Device operations, in the step in which they begin."""
    ops, windows = trace.device_ops, steps(trace)
    assert ops is not None
    step = np.searchsorted(windows.end_ns, ops["start_ns"], "right")
    row = ops.filled("host_op", NO_ROW).astype(np.int64)
    name = ops["name"].astype(np.int64)
    return _Pieces(step, ops["start_ns"], ops.end_ns, row, name, _numbered(trace, row, name))


def _numbered(trace: Trace, row: Rows, name: Rows) -> Rows:
    """A number for each place: the function, or where none is known the operator, else the name."""
    around = places(trace)
    frame, operator = around.frame[row], around.operator[row]
    named = np.where(operator != NO_ROW, operator, name)
    key = np.where(frame != NO_ROW, frame, len(trace.names) + 1 + named)
    return np.unique(key, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _busiest(
    trace: Trace, pieces: _Pieces, inside: NDArray[np.intp], usual: NDArray[np.intp]
) -> tuple[Place, str | None, int | None]:
    """The place that grew most against usual steps, with the longest piece there."""
    if not len(inside):
        return Place(), None, None
    around, length, of = places(trace), pieces.end_ns - pieces.start_ns, pieces.where
    count = int(of.max()) + 1
    ordinary = np.flatnonzero(np.isin(pieces.step, usual))
    taken, before = (np.bincount(of[at], length[at], count) for at in (inside, ordinary))
    grown = taken - before / len(usual)
    here = inside[of[inside] == np.argmax(grown)]
    if not len(here):
        return Place(), None, None
    longest = int(here[np.argmax(length[here])])
    row = int(pieces.row[longest])
    told = int(pieces.name[longest])
    where = place(
        trace,
        int(around.frame[row]),
        int(around.module[row]),
        int(around.operator[row]),
        int(around.annotation[row]),
        backward=bool(around.backward[row]),
    )
    name = None if told == NO_ROW else trace.names[told]
    if name and MARKER.match(name):  # says no more than that it was in the step
        name = None
    return where, name, int(pieces.start_ns[longest])


def _no_more_backward(trace: Trace, step: int, kind: StepKind) -> bool:
    """Whether usual steps have a backward pass, and this one no more of it."""
    backward = backward_per_step(trace)
    usual = np.median(backward[kind.steps])
    return bool(usual and backward[step] <= usual)
