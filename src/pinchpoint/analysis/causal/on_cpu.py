"""The causal profile of a program that computes on CPUs alone.

Nothing runs beside the thread of the steps that it does not wait for: what one of its pieces takes
there, the step is longer by. So no replay is needed: the time of each piece is added up over the
judged steps, exceptional ones included; where the run timed its steps itself, as that share of
them. *At its limit* an operator takes what one core of a slow
server would (:mod:`pinchpoint.analysis.limits.on_cpu`), Python what it took.
"""

import numpy as np

from pinchpoint.analysis.causal.piece import LEAST_STEP_RATIO, MOST_PIECES, Causal, Piece
from pinchpoint.analysis.causal.pieces import NOBODYS, Cut, pieces
from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.host.timeline import NO_ROW, host_rows
from pinchpoint.analysis.limits.on_cpu import cpu_limits_ns
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.analysis.ranks.collective_calls import rank_calls
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.gaps import host_did
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Floats
from pinchpoint.trace.intervals import Intervals, flatten, subtract


def on_cpus(trace: Trace, cuts: tuple[Cut, ...]) -> Causal | None:
    """The pieces of these cuts; None of a program with a device, or without steps."""
    base_ns = step_base_ns(trace) if computes_on_cpu(trace) and len(steps(trace)) else None
    if base_ns is None:
        return None
    windows = judged_steps(trace)
    recorded_ns = int((windows.end_ns - windows.start_ns).sum())
    return _causal(trace, cuts, base_ns, time_of_rows(trace), recorded_ns)


def of_own_time(trace: Trace, cuts: tuple[Cut, ...]) -> Causal | None:
    """The same of a rank's own time: without that in which the thread of the steps stood in a
    collective; None of a program with a device, or without steps."""
    own = _own_time(trace) if computes_on_cpu(trace) and len(judged_steps(trace)) else None
    if own is None or not own.total:
        return None
    base_ns = round(own.total / len(judged_steps(trace)))
    return _causal(trace, cuts, base_ns, _time_of_rows(trace, own), own.total)


def _own_time(trace: Trace) -> Intervals:
    """When a rank was not in a collective, in the judged steps."""
    windows, calls = judged_steps(trace), rank_calls(trace)
    end = calls.start_ns + calls.duration_ns
    stood = flatten(end - calls.exposed_ns, end)
    return subtract(flatten(windows.start_ns, windows.end_ns), stood)


def _causal(
    trace: Trace, cuts: tuple[Cut, ...], base_ns: int, took: Floats, recorded_ns: int
) -> Causal:
    count = max(len(judged_steps(trace)), 1)
    a_step = min(1 / count, base_ns / max(recorded_ns, 1))
    found = [piece for cut in cuts for piece in _pieces(trace, cut, base_ns, took, a_step)]
    found.sort(key=lambda piece: (piece.step_if_free_ns, -piece.occupied_ns, piece.name))
    return Causal(base_ns, tuple(found))


@once_per_trace
def time_of_rows(trace: Trace) -> Floats:
    """Nanoseconds of each row of ``host_ops`` by itself, in the judged steps on their thread; of
    the backward pass, on the thread that it waits for. The last element is that of no row."""
    windows = judged_steps(trace)
    return _time_of_rows(trace, Intervals(windows.start_ns, windows.end_ns))


def _time_of_rows(trace: Trace, spans: Intervals) -> Floats:
    rows = host_rows(trace)
    thread = np.full(len(spans.start), steps(trace).thread, np.int64)
    did = host_did(trace, thread, spans.start, spans.end)
    row = np.where(did.row == NO_ROW, len(rows), did.row)
    took = np.bincount(row, did.end_ns - did.start_ns, len(rows) + 1)
    return np.append(took[: rows.operators], took[-1:]).astype(np.float64)


def _pieces(
    trace: Trace, cut: Cut, base_ns: int, time_of_each: Floats, a_step: float
) -> list[Piece]:
    """The largest pieces of one cut; time of cuts that are of a device alone is nobody's."""
    host = trace.host_ops
    if host is None or cut in (Cut.KERNEL, Cut.COPY, Cut.COLLECTIVE, Cut.WAIT):
        return []
    found = pieces(trace, cut)
    name, names = found.host[: len(host)], len(trace.names) + len(found.labels)
    took = time_of_each[: len(host)]
    mine = (name != NOBODYS) & (took > 0)
    total = np.bincount(name[mine], took[mine], names)
    operator = mine & (host["kind"] == HostKind.OPERATOR)
    needs = cpu_limits_ns(trace)
    limited = operator & ~np.isnan(needs)
    known = np.bincount(name[limited], took[limited], names)
    unknown = np.bincount(name[operator], took[operator], names) - known
    told = (known >= LIMITED_RATIO * total) & (unknown <= UNKNOWN_RATIO * total)
    won = np.bincount(name[operator], (took - np.fmin(took, needs))[operator], names)
    # Rows inside the call of a function have its name as well.
    calls = np.bincount(name[mine & (host["name"] == name)], minlength=names)
    count = max(len(judged_steps(trace)), 1)
    order = np.argsort(-total, kind="stable")[:MOST_PIECES].tolist()
    return [
        _piece(
            cut,
            found.name(trace, at),
            (float(total[at]) * a_step, float(calls[at]) / count, float(won[at]) * a_step),
            base_ns,
            known=bool(told[at]),
        )
        for at in order
        if total[at] and total[at] * a_step >= LEAST_STEP_RATIO * base_ns
    ]


def _piece(
    cut: Cut, name: str, of_step: tuple[float, float, float], base_ns: int, *, known: bool
) -> Piece:
    """``of_step``: nanoseconds, calls, and nanoseconds that are won at the limit."""
    took, calls, won = of_step
    free = max(base_ns - round(took), 0)
    limit = round(took - won) if known else None
    return Piece(
        cut=cut,
        name=name,
        calls=calls,
        host_ns=round(took),
        device_ns=0,
        limit_ns=limit,
        needed_bytes=None,
        step_if_free_ns=free,
        step_at_limit_ns=base_ns if limit is None else free + limit,
        step_without_host_ns=free,
        base_ns=base_ns,
        critical_ns=round(took),
    )


LIMITED_RATIO = 0.5  # of a piece's time, in operators with a limit: below it, it has none
UNKNOWN_RATIO = 0.1  # of a piece's time, in operators without a limit: above it, it has none
