"""The collectives of one rank, on the device or by the host, with what was computed beside them."""

import numpy as np

from pinchpoint.analysis.device.collectives import Arguments, collective_arguments
from pinchpoint.analysis.device.short_names import short_kernel_name
from pinchpoint.analysis.host.launches import issued, own_work
from pinchpoint.analysis.ranks.blocked import blocked_ns
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.host_activity import sends_left_alone
from pinchpoint.frozen import dataclass
from pinchpoint.trace import DeviceKind, HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Rows
from pinchpoint.trace.intervals import Intervals, covered_before, flatten

POINT_TO_POINT = ("send", "recv", "sendrecv")  # as recorded
PAIR = "send and receive"  # the two ends of one transfer, once both ranks are known
AT_ONCE_NS = 20_000  # from the end of one collective to the start of the next on a busy stream
_BY_THE_HOST = ("gloo:", "mpi:", "ucc:")


@dataclass(frozen=True, eq=False)
class RankCalls:
    """Collectives in order of their start; arrays and ``asked`` have one element each."""

    start_ns: Ints
    duration_ns: Ints
    ready_ns: Ints  # when it could have started, but for the collective before it on its stream
    exposed_ns: Ints
    covered: Ints  # 1 where something was computed when it ended: nobody waited for it then
    step: Ints  # position of the step that issued it; -1 outside the steps
    asked: tuple[Arguments, ...]
    kernel: tuple[str, ...]
    point_to_point: int  # transfers whose other rank is not known, which are left out


@once_per_trace
def rank_calls(trace: Trace) -> RankCalls:
    """All collectives that were issued inside a step, or the whole recording without steps."""
    found = [*_on_device(trace), *_by_the_host(trace)]
    found = [(*f[:6], _as_pair(trace, f[6]), f[7]) for f in found]
    kept = [f for f in found if f[6].kind not in POINT_TO_POINT]
    pairs = len(found) - len(kept)
    order = np.argsort([f[0] for f in kept], kind="stable").tolist() if kept else []
    kept = [kept[i] for i in order]
    numbers = np.array([f[:6] for f in kept], np.int64).reshape(-1, 6)
    start, duration, from_when, exposed, covered, step = numbers.T
    return RankCalls(
        start_ns=start,
        duration_ns=duration,
        ready_ns=from_when,
        exposed_ns=exposed,
        covered=covered,
        step=step,
        asked=tuple(f[6] for f in kept),
        kernel=tuple(f[7] for f in kept),
        point_to_point=pairs,
    )


def _as_pair(trace: Trace, asked: Arguments) -> Arguments:
    """A send or receive as what both of its ranks do together; others as they are.

    Sequence numbers of these count what each rank did, so they differ between the two.
    """
    if asked.kind not in ("send", "recv") or asked.peer is None or trace.rank is None:
        return asked
    ends = (trace.rank, asked.peer) if asked.kind == "send" else (asked.peer, trace.rank)
    return Arguments(
        kind=PAIR,
        bytes=asked.bytes,
        dtype=asked.dtype,
        group=f"{asked.group or ''} {ends[0]} to {ends[1]}".strip(),
        group_description="point to point",
        group_ranks=f"[{ends[0]}, {ends[1]}]",
        group_size=2,
    )


_Call = tuple[int, int, int, int, int, int, Arguments, str]


def _on_device(trace: Trace) -> list[_Call]:
    ops = trace.device_ops
    if ops is None or not len(ops):
        return []
    by = issued(trace)
    step = step_of(trace, by.start_ns)
    chosen = (ops["kind"] == DeviceKind.COLLECTIVE) & (step >= 0) & own_work(trace)
    # Those without a call ran before the recording began; only where nothing is linked they count.
    chosen &= by.linked if by.linked.any() else True
    rows = np.flatnonzero(chosen)
    known = collective_arguments(trace)
    pairs = zip(
        ops.filled("collective", -1)[rows].tolist(),
        ops.filled("collective_args", -1)[rows].tolist(),
        strict=True,
    )
    start, end = ops["start_ns"][rows], ops.end_ns[rows]
    busy = computing(trace)
    exposed, covered = _alone(busy, start, end), _covers(busy, end)
    columns = (start, end - start, ready(trace, rows), exposed, covered, step[rows])
    numbers = zip(*(c.tolist() for c in columns), strict=True)
    kernels = [short_kernel_name(trace.names[n]) for n in ops["name"][rows].tolist()]
    return [
        (*n, known[pair], kernel) for n, pair, kernel in zip(numbers, pairs, kernels, strict=True)
    ]


def _by_the_host(trace: Trace) -> list[_Call]:
    host = trace.host_ops
    if host is None or not len(host):
        return []
    distinct = np.unique(host["name"][host["kind"] == HostKind.ANNOTATION])
    named = [n for n in distinct.tolist() if trace.names[n].startswith(_BY_THE_HOST)]
    rows = np.flatnonzero(np.isin(host["name"], named))
    start, end = host["start_ns"][rows], host.end_ns[rows]
    step = step_of(trace, start)
    busy = computing(trace)
    exposed, covered = _alone(busy, start, end), _covers(busy, end)
    if trace.device_ops is None or not len(trace.device_ops):
        exposed = blocked_ns(trace, start, end)
        exposed[np.isin(rows, sends_left_alone(trace))] = 0
    asked = [_of_the_host(trace.names[n]) for n in host["name"][rows].tolist()]
    columns = (start, end - start, start, exposed, covered, step)
    numbers = zip(*(c.tolist() for c in columns), strict=True)
    return [(*n, a, "") for n, a in zip(numbers, asked, strict=True) if n[5] >= 0]


def _of_the_host(name: str) -> Arguments:
    """Sends and receives by themselves: ranks do not make as many of them, and in another order."""
    alone = name.split(":")[-1] in POINT_TO_POINT
    return Arguments(kind=name, group="point to point" if alone else None)


def ready(trace: Trace, rows: Rows) -> Ints:
    """When each collective could have started, had its stream been free.

    A collective waits for what was issued before it. Where it follows another collective on its
    stream at once, its own start says only when that one was done.
    """
    ops, by = trace.device_ops, issued(trace)
    assert ops is not None
    start, end = ops["start_ns"], ops.end_ns
    stream = ops.filled("stream", -1)
    collective = ops["kind"] == DeviceKind.COLLECTIVE
    from_when: Ints = start[rows].copy()
    for one in np.unique(stream[rows]).tolist():
        on_stream = np.flatnonzero(stream == one)
        before = np.append(-1, on_stream[:-1])
        follows = collective[on_stream] & (before >= 0) & collective[before]
        follows &= start[on_stream] - end[before] < AT_ONCE_NS
        held = np.isin(rows, on_stream[follows])
        from_when[held] = np.minimum(from_when[held], _work_before(trace, rows[held]))
    return np.maximum(from_when, np.minimum(by.start_ns[rows], start[rows]))


def _work_before(trace: Trace, rows: Rows) -> Ints:
    """When everything else was done that was issued before each operation."""
    ops, by = trace.device_ops, issued(trace)
    assert ops is not None
    other = np.flatnonzero((ops["kind"] != DeviceKind.COLLECTIVE) & by.linked & own_work(trace))
    if not len(other):
        return ops["start_ns"][rows]
    order = other[np.argsort(by.start_ns[other], kind="stable")]
    done = np.maximum.accumulate(ops.end_ns[order])
    at = np.searchsorted(by.start_ns[order], by.start_ns[rows], "left") - 1
    return np.where(at >= 0, done[np.maximum(at, 0)], by.start_ns[rows])


def computing(trace: Trace) -> Intervals:
    """When kernels ran that are no collectives."""
    ops = trace.device_ops
    if ops is None:
        return flatten([], [])
    kernels = (ops["kind"] == DeviceKind.KERNEL) & own_work(trace)
    return flatten(ops["start_ns"][kernels], ops.end_ns[kernels])


def _alone(busy: Intervals, start: Ints, end: Ints) -> Ints:
    alone: Ints = end - start - (covered_before(busy, end) - covered_before(busy, start))
    return alone


def _covers(busy: Intervals, times: Ints) -> Ints:
    """1 where something is computed just before and after."""
    both: Ints = covered_before(busy, times + 1) - covered_before(busy, times - 1)
    return (both > 1).astype(np.int64)


def step_of(trace: Trace, times: Ints) -> Ints:
    """Position of the step whose host span, or the time up to the next, holds each time."""
    found = steps(trace)
    if not len(found):
        return np.full(len(times), -1, np.int64)
    at: Ints = np.searchsorted(found.host_start_ns, times, "right").astype(np.int64) - 1
    if found.how == "none":
        return np.maximum(at, 0)
    end = np.append(found.host_start_ns[1:], found.host_end_ns[-1:])
    return np.where((at >= 0) & (times < end[at]), at, -1)
