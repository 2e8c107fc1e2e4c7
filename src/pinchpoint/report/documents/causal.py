"""From a trace to the document of its causal profile: the step without each of its pieces."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from pinchpoint.analysis.causal.pieces import Cut, pieces
from pinchpoint.analysis.causal.profile import Causal, Piece, off_path, profile
from pinchpoint.analysis.device.short_names import short_kernel_name
from pinchpoint.analysis.host.frames import frame_of
from pinchpoint.analysis.host.on_cpu import computes_on_cpu, cpu_operators
from pinchpoint.analysis.host.source_lines import places
from pinchpoint.analysis.mean.mean_step import (
    mean_differs,
    mean_without_profiler_ns,
    timed_steps_ns,
)
from pinchpoint.analysis.replay.predict import corrected_step_ns
from pinchpoint.analysis.replay.recording_cost import why_uncalibrated
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.device_work import busiest_place
from pinchpoint.diagnosis.evidence.operators import known, known_on_cpu
from pinchpoint.json_text import indented, said
from pinchpoint.regex import regex
from pinchpoint.report.plain import plain
from pinchpoint.trace import Trace, once_per_trace

if TYPE_CHECKING:
    from pinchpoint.analysis.causal.of_job import OfJob
    from pinchpoint.analysis.limits.on_cpu import CpuPiece


SCHEMA = "pinchpoint.causal/1"
CUTS = tuple(str(cut.value) for cut in Cut)  # ways to cut a step
_TAKEN = regex(r"enumerate\((Data\w+)\)#.*__next__")
_BUILTIN = regex(r"<built-in (?:method|function) (\w+)")


class PieceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of a step; times are nanoseconds a step, without the profiler."""

    by: str  # operator, kernel, line, function, module, phase, copy, collective, wait
    name: str  # of the piece
    place: str | None  # where most of its device work is launched; null: not recorded
    calls: float  # device operations a step
    occupied_ns: int  # host_ns and device_ns
    host_ns: int  # host time of its own
    device_ns: int  # sum of its device operations
    hidden_ns: int  # of occupied_ns, what the step would not get shorter by
    limit_ns: int | None  # what its device work needs; null: not known for most of it
    needed_bytes: int | None  # that its device work has to move; null: as above
    step_if_free_ns: int  # the step without it
    step_at_limit_ns: int  # the step with its device work at the limit, its host time as it is
    step_without_host_ns: int  # the step with its device work, and without its host time
    critical_ns: int | None = None  # of occupied_ns, on the critical path
    known: str | None = None  # what makes such an operator slow, if it is
    shapes: str | None = None  # of the inputs of the calls that take most; null: not looked up


class StretchInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the critical path of one step; neighbours that are alike are one."""

    start_ns: int  # since the step before was complete
    duration_ns: int
    kind: str  # device, start (on its way to the device), call (of the driver), host, batch
    name: str | None  # operator, kernel, function or call that has most of it; null: none recorded


class CriticalPathInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the end of a step waited for, back to its beginning; times without the profiler."""

    ns_per_step: dict[str, int]  # by kind of stretch; together the step
    stretches: tuple[StretchInfo, ...]  # of the step nearest to the mean, in order


class CausalDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All pieces of one recording, the largest gain first."""

    schema: str = SCHEMA  # this name and version
    path: str  # of the recording
    base_ns: int | None  # the step that all steps are compared with
    base: str = "step"  # which one: typical or mean, with the profiler or without
    pieces: tuple[PieceInfo, ...]  # those that take 1 % of the step or more, 40 a cut
    why_not: str | None = None  # why there are none
    critical_path: CriticalPathInfo | None = None  # null: as why_not says
    names_apart: bool = False  # pieces are of the window with names, the path of that without


def causal_document(trace: Trace, by: str | None = None) -> CausalDocument:
    """The document of one recording, of one cut or all; of a run, pieces of its window with names
    and the critical path of the other."""
    path, bare, trace = trace.source.path, trace, trace.with_names
    # The path that reports show: recording names lengthens what the host does.
    of_bare = critical_path_info(bare)
    found = profile(trace, tuple(Cut) if by is None else (Cut(by),))
    return CausalDocument(
        path=said(str(path)),
        base_ns=found.base_ns,
        base=_base(trace),
        pieces=tuple(_info(trace, piece) for piece in found.pieces),
        why_not=found.why_not,
        critical_path=of_bare or critical_path_info(trace),
        names_apart=of_bare is not None and bare is not trace,
    )


def critical_path_info(trace: Trace) -> CriticalPathInfo | None:
    """None where the trace cannot be replayed."""
    from pinchpoint.analysis.causal.path_of_step import path_of_step

    found = path_of_step(trace) if len(steps(trace)) else None
    if found is None:
        return None
    return CriticalPathInfo(
        ns_per_step={link.name.lower(): ns for link, ns in found.ns_per_step.items()},
        stretches=tuple(
            StretchInfo(
                start_ns=one.start_ns,
                duration_ns=one.duration_ns,
                kind=one.link.name.lower(),
                name=None if one.name is None else plain(_readable(one.name)),
            )
            for one in found.stretches
        ),
    )


def _base(trace: Trace) -> str:
    known = len(timed_steps_ns(trace)) or why_uncalibrated(trace) is None
    mean = mean_without_profiler_ns(trace) is not None or (
        corrected_step_ns(trace) is None and mean_differs(trace)
    )
    return f"{'mean step' if mean else 'step'} {'without' if known else 'with'} the profiler"


class JobPieceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of the ranks of a job; times are nanoseconds a step, without the profiler."""

    by: str  # line, operator, wait, copy
    name: str  # of the piece
    rank: int  # that it takes most of
    own_ns: int  # that the own time of this rank would be shorter by
    least_own_ns: int  # the same of the rank that has least of it
    step_if_free_there_ns: int  # the job's step without it on this rank alone
    step_if_free_ns: int  # and without it on all ranks
    step_if_even_ns: int  # and with no rank taking longer for it than the one that has least


class CausalJobDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The pieces of all ranks of a job, the largest gain first."""

    schema: str = "pinchpoint.causal_job/1"  # this name and version
    path: str  # of the folder
    ranks: tuple[int, ...]  # that were read
    base_ns: int | None  # the job's step
    nobody_late_ns: int | None  # with no rank slower than the median of its peers
    no_transfers_ns: int | None  # if transfers between ranks took no time
    pieces: tuple[JobPieceInfo, ...]
    why_not: str | None = None  # why there are none


def causal_job_document(path: str, ranks: Sequence[int], found: "OfJob") -> CausalJobDocument:
    """The document of the ranks of one job, by their position."""
    return CausalJobDocument(
        path=said(path),
        ranks=tuple(ranks),
        base_ns=found.base_ns,
        nobody_late_ns=found.nobody_late_ns,
        no_transfers_ns=found.no_transfers_ns,
        pieces=tuple(
            JobPieceInfo(
                by=piece.cut.value,
                name=plain(_readable(piece.name)),
                rank=ranks[piece.rank],
                own_ns=piece.own_ns,
                least_own_ns=piece.least_own_ns,
                step_if_free_there_ns=piece.step_if_free_there_ns,
                step_if_free_ns=piece.step_if_free_ns,
                step_if_even_ns=piece.step_if_even_ns,
            )
            for piece in found.pieces
        ),
        why_not=found.why_not,
    )


def encode_causal(document: CausalDocument | CausalJobDocument) -> bytes:
    """The document as JSON."""
    return indented(document)


def _info(trace: Trace, piece: Piece) -> PieceInfo:
    entry = known(piece.name, piece.name if piece.cut is Cut.KERNEL else "")
    far = piece.limit_ns is None or 2 * piece.limit_ns < piece.device_ns
    return PieceInfo(
        by=piece.cut.value,
        name=plain(_spelt(piece)),
        place=_place(trace, piece),
        calls=round(piece.calls, 2),
        occupied_ns=piece.occupied_ns,
        host_ns=piece.host_ns,
        device_ns=piece.device_ns,
        hidden_ns=piece.hidden_ns,
        limit_ns=piece.limit_ns,
        needed_bytes=piece.needed_bytes,
        step_if_free_ns=piece.step_if_free_ns,
        step_at_limit_ns=piece.step_at_limit_ns,
        step_without_host_ns=piece.step_without_host_ns,
        critical_ns=piece.critical_ns,
        known=entry.why if entry is not None and far and piece.device_ns else None,
    )


def _spelt(piece: Piece) -> str:
    """The name as people read it: ``forward (model.py:41)``, ``Linear_7``."""
    return short_kernel_name(piece.name) if piece.cut is Cut.KERNEL else _readable(piece.name)


def _readable(name: str) -> str:
    if frame := frame_of(name):
        return f"{frame.function} ({frame.file}:{frame.line})"
    if builtin := _BUILTIN.match(name):
        return f"{builtin[1]} (built-in)"
    if taken := _TAKEN.search(name):
        return f"batches of {taken[1]}"
    return name.removeprefix("nn.Module: ")


def _place(trace: Trace, piece: Piece) -> str | None:
    """The program's function that launches most of its device work."""
    ops, host = trace.device_ops, trace.host_ops
    if piece.cut in (Cut.LINE, Cut.FUNCTION) or ops is None or host is None or not piece.calls:
        return None
    number = trace.names.index(piece.name)
    mine = device_ops_in_steps(trace) & (pieces(trace, piece.cut).device == number)
    frame = places(trace).frame[ops.filled("host_op", -1)[mine]]
    took = ops["duration_ns"][mine]
    if not (frame >= 0).any():
        return None
    most = int(np.bincount(frame[frame >= 0], took[frame >= 0]).argmax())
    found = frame_of(trace.names[most])
    return None if found is None else plain(f"{found.function} ({found.file}:{found.line})")


# ------------------------------------------------------------------------------------------------
# What a report says of it: the piece that is left, far from its limit, when no finding is.

FAR_RATIO = 3.0  # limits are right within a factor of two
WORTH_SAYING_RATIO = 0.05  # of the step, at the limit; less is the error of a limit


def furthest(trace: Trace) -> PieceInfo | None:
    """The operator far from its limit that the step would gain most by; None without one."""
    found: Causal = off_path(trace, Cut.OPERATOR)
    far = [
        piece
        for piece in found.of(Cut.OPERATOR)
        if piece.in_kernels
        and piece.times_limit is not None
        and piece.times_limit >= FAR_RATIO
        and piece.base_ns - piece.step_at_limit_ns >= WORTH_SAYING_RATIO * piece.base_ns
    ]
    most = min(far, key=lambda piece: piece.step_at_limit_ns, default=None)
    return None if most is None else _info(trace, most)


DOMINATES_RATIO = 0.25  # of the step: so much without a known limit leaves the answer open
KNOWN_RATIO = 0.10  # the same where it is known what makes the operator slow wherever it runs


def without_limit(trace: Trace) -> PieceInfo | None:
    """The operator with most device time whose limit is not known; None where none has much.

    Without a device, of the time of the host.
    """
    if computes_on_cpu(trace):
        return _without_limit_on_cpu(trace)
    open_ = [
        piece
        for piece in off_path(trace, Cut.OPERATOR).pieces
        if piece.limit_ns is None
        and piece.in_kernels
        and piece.device_ns
        >= (KNOWN_RATIO if _known_anywhere(piece.name) else DOMINATES_RATIO) * piece.base_ns
    ]
    most = max(open_, key=lambda piece: piece.device_ns, default=None)
    return None if most is None else _info(trace, most)


def _known_anywhere(operator: str) -> bool:
    entry = known(operator, "")
    return entry is not None and entry.always


def heaviest_line(trace: Trace, named: Trace) -> PieceInfo | None:
    """The function of the program with most device work; None where none dominates the step.

    Places are read from ``named``, a recording of the same run. Without a device, the operator
    that the host computes longest.
    """
    if computes_on_cpu(trace):
        from pinchpoint.analysis.limits.on_cpu import cpu_pieces

        longest = next(iter(cpu_pieces(trace)), None)
        return None if longest is None else _on_cpu(trace, longest, named)
    heavy = [
        piece
        for piece in off_path(named, Cut.LINE).pieces
        if piece.base_ns - piece.step_if_free_ns >= DOMINATES_RATIO * piece.base_ns
        and piece.device_ns >= DOMINATES_RATIO * piece.base_ns
    ]
    most = max(heavy, key=lambda piece: piece.device_ns, default=None)
    if most is None:
        return None
    on_path = profile(named, (Cut.LINE,)).pieces
    return _info(named, next(piece for piece in on_path if piece.name == most.name))


def _without_limit_on_cpu(trace: Trace) -> PieceInfo | None:
    from pinchpoint.analysis.limits.on_cpu import cpu_pieces

    most = next((piece for piece in cpu_pieces(trace) if piece.limit_ns is None), None)
    return None if most is None else _on_cpu(trace, most, trace)


def _on_cpu(trace: Trace, most: "CpuPiece", named: Trace) -> PieceInfo | None:
    """What a report says of it; None where it does not dominate the step."""
    base_ns = steps(trace).typical_ns
    if not base_ns or most.ns_per_step < DOMINATES_RATIO * base_ns:
        return None
    from pinchpoint.analysis.limits.on_cpu import cpu_pieces

    there = next((piece for piece in cpu_pieces(named) if piece.name == most.name), None)
    rows = most.rows[:0] if there is None else there.rows
    own_ns = cpu_operators(named).own_ns if len(rows) else np.zeros(0, np.int64)
    place, _ = busiest_place(named, rows, own_ns[rows])
    place = None if str(place) == most.name else place
    entry, rest_ns = known_on_cpu(most.name), max(base_ns - most.ns_per_step, 0)
    return PieceInfo(
        by=Cut.OPERATOR.value,
        name=plain(most.name),
        place=None if place is None else plain(str(place)),
        calls=round(most.calls, 2),
        occupied_ns=most.ns_per_step,
        host_ns=most.ns_per_step,
        device_ns=0,
        hidden_ns=0,
        limit_ns=most.limit_ns,
        needed_bytes=None,
        step_if_free_ns=rest_ns,
        step_at_limit_ns=base_ns,
        step_without_host_ns=rest_ns,
        known=entry.why if entry else None,
        shapes=None if most.shapes is None else plain(most.shapes),
    )


_SHOWN = (Cut.OPERATOR, Cut.LINE, Cut.WAIT, Cut.COLLECTIVE, Cut.COPY)


@once_per_trace
def shown_pieces(trace: Trace) -> tuple[PieceInfo, ...]:
    """Those that a report shows, largest gain first; of a run, of its window with names."""
    named = trace.with_names
    return tuple(_info(named, piece) for piece in profile(named, _SHOWN).pieces)


MOST_RUNGS, _OF_A_CUT = 8, 3  # rows on a screen; each way of cutting gets some


def ladder(pieces: Sequence[PieceInfo]) -> tuple[PieceInfo, ...]:
    """The pieces worth most: three of each of the cuts that a report shows, and then any."""
    chosen = [
        piece
        for cut in _SHOWN
        for piece in [one for one in pieces if one.by == cut.value][:_OF_A_CUT]
    ]
    shown = {cut.value for cut in _SHOWN}
    rest = [piece for piece in pieces if piece.by in shown and piece not in chosen]
    chosen += rest[: max(MOST_RUNGS - len(chosen), 0)]
    chosen.sort(key=lambda piece: piece.step_if_free_ns)
    return tuple(chosen[:MOST_RUNGS])
