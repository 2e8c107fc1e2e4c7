"""What recording itself costs the host: an estimate, to be taken out again.

Two parts. What the profiler does between steps (``profiler.step()``: state changes, buffer
handling) happens between the end of one ``ProfilerStep`` marker and the start of the next, where
no user code runs: it is taken out whole. What it does at the beginning and end of everything it
records lies between the times of neighbouring events of one thread, and cannot be more than what
passed there: of each such interval it is a share, up to a most, and more in functions of thousands
of lines (``line_lookups``). Inside a call nothing is taken out.
Shares were fitted to recordings of the same programs with and without the profiler;
``benchmarks/recording_cost.py`` makes the fit again and prints what is left of the error.
"""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.replay.line_lookups import generated_frames, lookups_ns
from pinchpoint.frozen import dataclass
from pinchpoint.trace import ApiKind, HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Ints, distinct
from pinchpoint.trace.intervals import NONE, Intervals, contains, covered_before, flatten

# The recorder that the costs below were measured with; see kineto/recorder.py for its signs.
CALIBRATED_RECORDER = "torch.profiler"


def why_uncalibrated(trace: Trace) -> str | None:
    """Why the costs below are not those of what made this recording; None where they are.

    Also None where nothing was timed, so that there is nothing to correct.
    """
    timed = (trace.host_ops, trace.api_calls, trace.device_ops)
    if not any(rows is not None and len(rows) for rows in timed):
        return None
    if trace.source.recorder is None:
        return "the file does not show what recorded it"
    if trace.source.recorder != CALIBRATED_RECORDER:
        return "no calibration for this recorder"
    worked = trace.device_ops is not None and len(trace.device_ops)
    if worked and (trace.host_ops is None or not len(trace.host_ops)):
        return "nothing of the host was recorded but its calls"
    return None


def calibrated(trace: Trace) -> bool:
    """Whether the costs below are those of what made this recording."""
    return why_uncalibrated(trace) is None


@dataclass(frozen=True)
class Share:
    """What recording takes of the time between two neighbouring events of a thread."""

    ratio: float
    most_ns: float


@dataclass(frozen=True)
class RecordingCosts:
    """By what the two events are: a runtime call is one of them, else one that only asks for a
    state, else a Python frame, else none."""

    operator: Share
    frame: Share
    call: Share
    # Of a call that asks, nothing but its begin and end is recorded. A library that prepares a
    # convolution asks for errors hundreds of times in a millisecond, and computes in between.
    query: Share = Share(0.70, 2_000)

    @property
    def shares(self) -> tuple[Share, ...]:
        """In the order of the codes of :class:`_Line`."""
        return (self.operator, self.frame, self.query, self.call)


# Fitted to programs recorded with and without the profiler, on hosts of H100s and H200s, with
# stacks and shapes; without both, the shares hold as well. Most of a long interval is the
# program's own: unrecorded library calls between two operators are not slowed.
COSTS = RecordingCosts(
    operator=Share(0.80, 8_000), frame=Share(0.85, 8_000), call=Share(0.70, 12_000)
)
_OPERATOR, _FRAME, _QUERY, _CALL = range(4)
_NAMED = (HostKind.OPERATOR, HostKind.ANNOTATION, HostKind.COMPILE)
_FRAMES = (HostKind.PYTHON, HostKind.MODULE)


@dataclass(frozen=True, eq=False)
class _Line:
    """Times at which events of one thread start or end, and what lies after each of them.

    ``kind`` is the code of the interval to the next time; -1 where recording takes none of it.
    """

    at_ns: Ints
    kind: NDArray[np.int8]
    lookup_ns: Floats  # of each of them, that the recorder took to find a line

    def until_ns(self, times: Ints, costs: RecordingCosts) -> Floats:
        """What recording took before each of these times."""
        ratio = np.array([share.ratio for share in costs.shares] + [0.0])[self.kind]
        most = np.array([share.most_ns for share in costs.shares] + [0.0])[self.kind]
        lasting, lookup = np.diff(self.at_ns), self.lookup_ns
        whole = np.minimum(ratio[:-1] * (lasting - lookup[:-1]), most[:-1]) + lookup[:-1]
        before = np.concatenate(([0.0], np.cumsum(whole)))
        at = np.searchsorted(self.at_ns, times, "right") - 1
        last = np.maximum(at, 0)
        since = times - self.at_ns[last]
        begun = np.minimum(lookup[last], since)
        begun = begun + np.minimum(ratio[last] * (since - begun), most[last])
        return np.where(at >= 0, before[last] + begun, 0.0)


def cost_in_windows(
    trace: Trace,
    threads: NDArray[np.intp],
    start_ns: Ints,
    end_ns: Ints,
    costs: RecordingCosts = COSTS,
) -> Ints:
    """Recording cost on ``threads`` inside each window ``[start, end)``; windows do not overlap.

    Zero for a recorder without calibration.
    """
    if not calibrated(trace):
        return np.zeros(len(start_ns), np.int64)
    end_ns = np.maximum(end_ns, start_ns)
    between = profiler_steps(trace) if _marks(trace, threads) else NONE
    whole = covered_before(between, end_ns) - covered_before(between, start_ns)
    lines = _lines(trace)
    taken = np.zeros(len(start_ns))
    for thread in distinct(threads).tolist():
        if (line := lines.get(thread)) is not None:
            until = line.until_ns(np.concatenate((end_ns, start_ns)), costs)
            taken += until[: len(end_ns)] - until[len(end_ns) :]
    taken = np.minimum(taken, end_ns - start_ns - whole)
    cost: Ints = whole + taken.astype(np.int64)
    return cost


@once_per_trace
def _lines(trace: Trace) -> dict[int, _Line]:
    """The line of each thread that has events."""
    host, calls, parts = trace.host_ops, trace.api_calls, []
    if host is not None and len(host):
        for what, kinds in ((_OPERATOR, _NAMED), (_FRAME, _FRAMES)):
            parts.append((what, host, np.isin(host["kind"], kinds)))
    if calls is not None and len(calls):
        asks = calls["kind"] == ApiKind.QUERY
        parts += [(_QUERY, calls, asks), (_CALL, calls, ~asks)]
    if not parts:
        return {}
    at = np.concatenate([t for _, of, m in parts for t in (of["start_ns"][m], of.end_ns[m])])
    code = np.concatenate([np.full(2 * int(m.sum()), c, np.int8) for c, _, m in parts])
    opens = np.concatenate([np.repeat([1, -1], int(m.sum())) for _, _, m in parts])
    thread = np.concatenate([np.tile(of["thread"][m], 2) for _, of, m in parts])
    order = np.lexsort((opens, at, thread))  # what ends at a time ends before what starts then
    at, code, opens, thread = at[order], code[order], opens[order], thread[order]
    edges = np.flatnonzero(np.diff(thread)) + 1
    between = profiler_steps(trace)
    pieces = (np.split(of, edges) for of in (thread, at, code, opens))
    written, start, end = generated_frames(trace)
    lines = {}
    for t, a, c, o in zip(*pieces, strict=True):
        if len(t):
            mine = written == t[0]
            lookups = lookups_ns(a, o, start[mine], end[mine])
            lines[int(t[0])] = _line(a, c, o, lookups, between)
    return lines


def _line(
    at: Ints, code: NDArray[np.int8], opens: Ints, lookups: Floats, between: Intervals
) -> _Line:
    following = np.append(code[1:], code[-1:])
    kind = np.maximum(code, following)
    in_a_call = np.cumsum(np.where(code >= _QUERY, opens, 0)) > 0
    kind[in_a_call | contains(between, at)] = -1
    kind[-1] = -1  # after the last event nothing is recorded
    lookups = np.where(kind < 0, 0.0, lookups)
    # With no look-up, one cell: of a gigabyte of text this column would be a hundredth.
    return _Line(at, kind, lookups if lookups.any() else np.broadcast_to(0.0, at.shape))


def profiler_steps(trace: Trace) -> Intervals:
    """Time between consecutive ``ProfilerStep`` markers: the profiler's own."""
    rows = trace.steps
    if rows is None or len(rows) < 2:
        return NONE
    if not all(trace.names[n].startswith("ProfilerStep") for n in distinct(rows["name"])):
        return NONE
    return flatten(rows.end_ns[:-1], rows["start_ns"][1:])


def _marks(trace: Trace, threads: NDArray[np.intp]) -> bool:
    return trace.steps is not None and bool(np.isin(trace.steps["thread"], threads).any())
