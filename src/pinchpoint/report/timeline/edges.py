"""What leads from event to event besides launches: waits, and the critical path of one step.

Rows are those of device_ops, host_ops and api_calls, one after the other.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.causal.path_of_step import rows_of_path
from pinchpoint.report.timeline.kinds import Numbers
from pinchpoint.trace import ApiKind, FlowKind, Table, Trace

EVENT_WAIT, ENDS_WAIT = 0, 1  # kinds of edges
NO_DEVICE = -1  # stands for null; devices are numbered from 0
_NOTHING = (np.zeros(0, np.int64), np.zeros(0, np.int64))
MOST_EDGES = 20_000  # of all kinds, the first ones; each takes some bytes of the page
MOST_OF_PATH = 5_000  # events of the critical path that are marked, the longest ones
_WAITS = (ApiKind.SYNC_DEVICE, ApiKind.SYNC_STREAM, ApiKind.SYNC_EVENT)


def edges(trace: Trace) -> list[tuple[int, int, int]]:
    """Row, the row that follows from it, and how: an event that a stream waits for, or the end of
    the device operation that a call of the host waited for."""
    found = [*_event_waits(trace), *_ended_waits(trace)]
    return found[:MOST_EDGES]


def _event_waits(trace: Trace) -> Iterator[tuple[int, int, int]]:
    """From the call that records an event to the next operation of the stream that waits for it.

    That operation is the first in its stream whose launch begins after the wait, as in Holistic
    Trace Analysis' critical path.
    """
    flows, calls, ops = trace.flows, trace.api_calls, trace.device_ops
    if flows is None or calls is None or ops is None:
        return
    waits = flows.take(
        (flows["kind"] == FlowKind.EVENT_WAIT)
        & flows.known("from_correlation")
        & flows.known("to_stream")
    )
    recorded = np.flatnonzero(calls["kind"] == ApiKind.EVENT_RECORD)
    correlations = calls.filled("correlation", -1)[recorded].tolist()
    by_correlation = dict(zip(correlations, recorded.tolist(), strict=True))
    launched = _launches(ops, calls)
    first_call = len(ops) + (0 if trace.host_ops is None else len(trace.host_ops))
    for at, correlation, *where in zip(
        waits["start_ns"].tolist(),
        waits["from_correlation"].tolist(),
        waits.filled("device", NO_DEVICE).tolist(),
        waits["to_stream"].tolist(),
        strict=True,
    ):
        begin, rows = launched.get((where[0], where[1]), _NOTHING)
        next_one = int(np.searchsorted(begin, at))
        if correlation in by_correlation and next_one < len(rows):
            yield first_call + by_correlation[correlation], int(rows[next_one]), EVENT_WAIT


def _launches(ops: Table, calls: Table) -> dict[tuple[int, int], tuple[Numbers, Numbers]]:
    """By device and stream: when its operations were launched, in order, and their rows.

    Streams of two devices may have one number. A wait that does not say its device is one of the
    only device that has its stream.
    """
    known = np.flatnonzero(ops.known("stream") & ops.known("api_call"))
    device = ops.filled("device", NO_DEVICE)[known]
    stream, begin = ops["stream"][known], calls["start_ns"][ops["api_call"][known]]
    order = np.lexsort((begin, stream, device))
    known, begin = known[order], begin[order]
    places = np.stack((device[order], stream[order]), axis=1)
    found = {}
    for where in np.unique(places, axis=0):
        mine = (places == where).all(axis=1)
        found[int(where[0]), int(where[1])] = begin[mine], known[mine]
    numbers = Counter(stream for _, stream in found)
    alone = {(NO_DEVICE, s): rows for (_, s), rows in found.items() if numbers[s] == 1}
    return alone | found


def _ended_waits(trace: Trace) -> Iterator[tuple[int, int, int]]:
    """From the last device operation that ends inside a waiting call to that call."""
    calls, ops = trace.api_calls, trace.device_ops
    if calls is None or ops is None or not len(ops):
        return
    waits = np.flatnonzero(np.isin(calls["kind"], _WAITS))
    order = np.argsort(ops.end_ns, kind="stable")
    last = np.searchsorted(ops.end_ns[order], calls.end_ns[waits], "right") - 1
    row = order[np.maximum(last, 0)]
    inside = (last >= 0) & (ops.end_ns[row] > calls["start_ns"][waits])
    first_call = len(ops) + (0 if trace.host_ops is None else len(trace.host_ops))
    for begin, end in zip(row[inside].tolist(), waits[inside].tolist(), strict=True):
        yield begin, first_call + end, ENDS_WAIT


def path(trace: Trace) -> Numbers:
    """Rows on the critical path of the step that is nearest to the mean, in its order; empty where
    the trace cannot be replayed."""
    ops = 0 if trace.device_ops is None else len(trace.device_ops)
    found = rows_of_path(trace)
    rows = np.where(found.on_device, found.row, found.row + ops)
    if len(rows) > MOST_OF_PATH:
        rows = rows[np.sort(np.argsort(-found.ns, kind="stable")[:MOST_OF_PATH])]
    return rows[np.append(True, np.diff(rows) != 0)] if len(rows) else rows
