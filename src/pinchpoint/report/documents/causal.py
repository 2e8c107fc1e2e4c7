"""From a trace to the document of its causal profile: the step without each of its pieces."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from pinchpoint.analysis.causal.on_cpu import time_of_rows
from pinchpoint.analysis.causal.pieces import Cut, compiled_place, pieces
from pinchpoint.analysis.causal.profile import Piece, profile
from pinchpoint.analysis.device.compiled import compiled_rows
from pinchpoint.analysis.device.short_names import short_kernel_name
from pinchpoint.analysis.host.frames import frame_of
from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.host.source_lines import places
from pinchpoint.analysis.limits.on_cpu import held_up
from pinchpoint.analysis.mean.mean_step import (
    mean_differs,
    mean_without_profiler_ns,
    timed_steps_ns,
)
from pinchpoint.analysis.replay.predict import corrected_step_ns
from pinchpoint.analysis.replay.recording_cost import why_uncalibrated
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.operators import known, known_on_cpu
from pinchpoint.json_text import indented, said
from pinchpoint.regex import regex
from pinchpoint.report.plain import plain
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Ints, Mask, NameIds

if TYPE_CHECKING:
    from pinchpoint.analysis.causal.of_job import OfJob


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
    instead: str | None = None  # what to use in its place, where that is known too
    shapes: str | None = None  # of the inputs of the calls that take most; null: not looked up
    shapes_ratio: float | None = None  # of its time, in calls with these; null: not looked up
    place_ratio: float | None = None  # of its time, at ``place``; null: not looked up


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
    on_cpus: bool = False  # without a device: times are of the steps' thread, limits of a slow core
    held_up: bool = False  # that: others had its cores, and waiting for them is in its times
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
        pieces=tuple(piece_info(trace, piece) for piece in found.pieces),
        why_not=found.why_not,
        critical_path=of_bare or critical_path_info(trace),
        on_cpus=computes_on_cpu(trace),
        held_up=held_up(trace) is not None,
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
    known = len(timed_steps_ns(trace)) or (
        why_uncalibrated(trace) is None and not computes_on_cpu(trace)
    )
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


def piece_info(trace: Trace, piece: Piece) -> PieceInfo:
    """What a document says of a piece."""
    on_cpus = computes_on_cpu(trace)
    entry = (
        known_on_cpu(piece.name) if on_cpus else known(piece.name, _longest_kernel(trace, piece))
    )
    took_ns = piece.host_ns if on_cpus else piece.device_ns
    far = took_ns > 0 and (piece.limit_ns is None or 2 * piece.limit_ns < took_ns)
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
        known=entry.why if entry is not None and far else None,
        instead=entry.instead if entry is not None and far else None,
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
    return compiled_place(name) or name.removeprefix("nn.Module: ")


def _longest_kernel(trace: Trace, piece: Piece) -> str:
    """The kernel that takes most of an operator's device time: what is known may be of it alone."""
    if piece.cut is Cut.KERNEL:
        return piece.name
    ops = trace.device_ops
    if piece.cut is not Cut.OPERATOR or ops is None or not piece.device_ns:
        return ""
    mine = _its_rows(trace, piece)
    took = np.bincount(ops["name"][mine], ops["duration_ns"][mine])
    return trace.names[int(took.argmax())] if len(took) else ""


def _its_rows(trace: Trace, piece: Piece) -> Mask:
    """Its device operations in the judged steps."""
    found = pieces(trace, piece.cut)
    number = found.position(trace, piece.name)
    mine: Mask = device_ops_in_steps(trace) & (found.device == number)
    return mine


def _place(trace: Trace, piece: Piece) -> str | None:
    """The program's function that launches most of its device work; without a device, that calls
    most of it."""
    if computes_on_cpu(trace) and piece.cut not in (Cut.LINE, Cut.FUNCTION):
        return _calling(trace, piece)
    ops, host = trace.device_ops, trace.host_ops
    if piece.cut in (Cut.LINE, Cut.FUNCTION) or ops is None or host is None or not piece.calls:
        return None
    mine = _its_rows(trace, piece)
    if (compiled := trace.compiled_ops) is not None and len(compiled):
        row = compiled_rows(trace)[mine]
        source = np.where(compiled.known("source"), compiled["source"], -1).astype(np.int64)
        source, took = source[row[row >= 0]], ops["duration_ns"][mine][row >= 0]
        if (source >= 0).any():
            most = int(np.bincount(source[source >= 0], took[source >= 0]).argmax())
            return compiled_place(trace.names[most])
    frame = places(trace).frame[ops.filled("host_op", -1)[mine]]
    return _most(trace, frame, ops["duration_ns"][mine])


def _calling(trace: Trace, piece: Piece) -> str | None:
    found, host = pieces(trace, piece.cut), trace.host_ops
    assert host is not None
    mine = found.host[: len(host)] == found.position(trace, piece.name)
    return _most(trace, places(trace).frame[: len(host)][mine], time_of_rows(trace)[:-1][mine])


def _most(trace: Trace, frame: Ints | NameIds, took: Ints | Floats) -> str | None:
    """The function that most of the time is of."""
    if not (frame >= 0).any():
        return None
    most = int(np.bincount(frame[frame >= 0], took[frame >= 0]).argmax())
    found = frame_of(trace.names[most])
    return None if found is None else plain(f"{found.function} ({found.file}:{found.line})")


_SHOWN = (Cut.OPERATOR, Cut.LINE, Cut.WAIT, Cut.COLLECTIVE, Cut.COPY)


@once_per_trace
def shown_pieces(trace: Trace) -> tuple[PieceInfo, ...]:
    """Those that a report shows, largest gain first; of a run, of its window with names."""
    named = trace.with_names
    return tuple(piece_info(named, piece) for piece in profile(named, _SHOWN).pieces)


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
