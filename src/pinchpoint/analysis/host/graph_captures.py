"""When the host captures device work as a graph, and builds it.

From the beginning of a stream's capture until the graph can be launched. Where Python was recorded,
with all that the framework does around both for it: it waits for the device and gives cached memory
back.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import parents
from pinchpoint.analysis.host.frames import frames_for_readers
from pinchpoint.trace import ApiKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.intervals import NONE, Intervals, flatten
from pinchpoint.trace.names import rows_named


@once_per_trace
def graph_captures(trace: Trace) -> Intervals:
    """The stretches of time in which graphs are captured and built."""
    calls = trace.api_calls
    if calls is None:
        return NONE
    begins = np.flatnonzero(rows_named(trace, calls, lambda name: "BeginCapture" in name))
    ends = np.flatnonzero(rows_named(trace, calls, lambda name: "EndCapture" in name))
    spans = []
    for begin in begins.tolist():
        later = ends[calls["start_ns"][ends] >= calls.end_ns[begin]]
        later = later[calls["thread"][later] == calls["thread"][begin]]
        if len(later):
            spans.append((_around(trace, begin)[0], _built_ns(trace, int(later[0]))))
    if not spans:
        return NONE
    return flatten(*np.array(spans, np.int64).T)


def _built_ns(trace: Trace, end: int) -> int:
    """When the graph whose capture this call ends has been built."""
    calls = trace.api_calls
    assert calls is not None
    after = np.flatnonzero(
        (calls["thread"] == calls["thread"][end]) & (calls["start_ns"] >= calls["start_ns"][end])
    )
    after = after[np.argsort(calls["start_ns"][after], kind="stable")]
    works = np.isin(calls["kind"][after], (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH, ApiKind.COPY))
    building = after[np.cumsum(works) == 0]
    building = building[calls["kind"][building] == ApiKind.GRAPH_BUILD]
    return max(int(calls.end_ns[building].max()), _around(trace, end)[1])


def _around(trace: Trace, call: int) -> tuple[int, int]:
    """Start and end of what the program called to make this call; of the call without Python."""
    calls, host = trace.api_calls, trace.host_ops
    assert calls is not None
    outermost = (int(calls["start_ns"][call]), int(calls.end_ns[call]))
    if host is None or not calls.known("host_op")[call]:
        return outermost
    readers = frames_for_readers(trace)
    for row in _ancestors(parents(host), int(calls["host_op"][call]), readers):
        outermost = (int(host["start_ns"][row]), int(host.end_ns[row]))
    return outermost


def _ancestors(chain: np.ndarray, row: int, until: Mask) -> Iterator[int]:
    """The row and those around it, up to one of ``until``; none where no such one is around."""
    passed = []
    while row < len(until) and not until[row]:
        passed.append(row)
        row = int(chain[row])
    if row < len(until):
        yield from passed
