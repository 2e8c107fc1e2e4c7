"""What no finding explains: pieces far from their limit, without one, or most of a step."""

from typing import TYPE_CHECKING

import numpy as np

from pinchpoint.analysis.causal.limits import needed_limits
from pinchpoint.analysis.causal.pieces import Cut
from pinchpoint.analysis.causal.profile import Causal, off_path, profile
from pinchpoint.analysis.host.lent_inputs import with_inputs
from pinchpoint.analysis.host.on_cpu import computes_on_cpu, cpu_operators
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.tables.compiled_programs import CompiledPlace, compiled_on_host
from pinchpoint.diagnosis.evidence.device_work import busiest_place
from pinchpoint.diagnosis.evidence.operators import known, known_on_cpu
from pinchpoint.report.documents.causal import PieceInfo, piece_info
from pinchpoint.report.plain import plain
from pinchpoint.trace import DeviceKind, Trace

if TYPE_CHECKING:
    from pinchpoint.analysis.limits.on_cpu import CpuPiece

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
    return None if most is None else piece_info(trace, most)


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
    return None if most is None else piece_info(trace, most)


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
    if (compiled := next(iter(compiled_on_host(trace)), None)) is not None:
        return _compiled(trace, compiled)
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
    return piece_info(named, next(piece for piece in on_path if piece.name == most.name))


def _compiled(trace: Trace, most: CompiledPlace) -> PieceInfo | None:
    """A line of compiled programs on the CPU alone; None where it does not dominate the step."""
    base_ns = steps(trace).typical_ns
    if not base_ns or most.ns_per_step < DOMINATES_RATIO * base_ns:
        return None
    rest_ns, folder = base_ns - most.ns_per_step, trace.run and trace.run.working_directory
    place = most.source.removeprefix(folder.rstrip("/") + "/") if folder else most.source
    return PieceInfo(
        by=Cut.OPERATOR.value,
        name=plain(", ".join(most.ops[:MOST_OPS])),
        place=plain(place),
        calls=round(most.calls, 2),
        occupied_ns=most.ns_per_step,
        host_ns=most.ns_per_step,
        device_ns=0,
        hidden_ns=0,
        limit_ns=None,
        needed_bytes=None,
        step_if_free_ns=max(rest_ns, 0),
        step_at_limit_ns=base_ns,
        step_without_host_ns=max(rest_ns, 0),
    )


MOST_OPS = 2  # compiled from one line, in a sentence


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
    place, mine = busiest_place(named, rows, own_ns[rows])
    place = None if str(place) == most.name else place
    of_place = float(own_ns[rows[mine]].sum() / max(own_ns[rows].sum(), 1)) if len(rows) else None
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
        shapes_ratio=None if most.shapes is None else round(_of_shapes(trace, most), 4),
        place_ratio=None if place is None or of_place is None else round(of_place, 4),
    )


def _of_shapes(trace: Trace, piece: "CpuPiece") -> float:
    """Of the time of an operator, that of its calls with the shapes that are told."""
    looked_up = with_inputs(trace)
    host = looked_up.host_ops
    assert host is not None
    took = cpu_operators(looked_up).own_ns[piece.rows]
    told = [looked_up.names[n] == piece.shapes for n in host.filled("shapes", 0)[piece.rows]]
    return float(took[np.array(told, np.bool_)].sum() / max(took.sum(), 1))


def without_limit_ratio(trace: Trace) -> float | None:
    """Of the kernels' time in the steps, what no limit is known of; None without kernels."""
    ops = trace.device_ops
    if ops is None:
        return None
    mine = device_ops_in_steps(trace) & (ops["kind"] == DeviceKind.KERNEL)
    took = ops["duration_ns"][mine]
    unknown = np.isnan(needed_limits(trace).limit_ns[mine])
    return float(took[unknown].sum() / took.sum()) if took.sum() else None
