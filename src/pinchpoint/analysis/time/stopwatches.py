"""Pieces of the steps that the program times itself, by reading a Python clock before and after."""

import numpy as np

from pinchpoint.analysis.host.frames import called_by_program
from pinchpoint.analysis.host.launches import issued, main_thread
from pinchpoint.analysis.steps.in_steps import judged_steps, rows_in_steps
from pinchpoint.frozen import dataclass
from pinchpoint.trace import ApiKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask, Rows
from pinchpoint.trace.names import rows_named

_CLOCKS = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns")
_READINGS = {f"<built-in function {clock}>" for clock in _CLOCKS}
_SYNCS = (ApiKind.SYNC_DEVICE, ApiKind.SYNC_STREAM, ApiKind.SYNC_EVENT)


@dataclass(frozen=True, eq=False)
class Stopwatches:
    """Timed pieces of the judged steps, in order; arrays have one element each."""

    row: Rows  # of host_ops: the first reading
    step: Ints  # position among the judged steps
    name: str  # of the clock
    start_ns: Ints
    end_ns: Ints
    launches: Ints  # device operations launched between the readings
    waits: Mask  # the host synchronised between them
    device_end_ns: Ints  # when that device work was done
    work_ns: Ints  # what it took on the device, all operations added up


def clock_readings(trace: Trace) -> Mask:
    """Rows of ``host_ops`` that read a clock of Python."""
    assert trace.host_ops is not None
    return rows_named(trace, trace.host_ops, _READINGS.__contains__)


@once_per_trace
def stopwatches(trace: Trace) -> Stopwatches | None:
    """Pairs of clock readings with launches between; None where no clock is read in the steps."""
    host, calls, ops = trace.host_ops, trace.api_calls, trace.device_ops
    if host is None or calls is None or ops is None:
        return None
    reading = clock_readings(trace) & (host["thread"] == main_thread(trace))
    reading &= called_by_program(trace)[:-1] == np.arange(len(host))  # not by a library for itself
    rows = np.flatnonzero(reading & rows_in_steps(trace, host))
    step = judged_steps(trace).step_of(host["start_ns"][rows])
    pair = np.flatnonzero(step[1:] == step[:-1]) if len(rows) > 1 else np.zeros(0, np.intp)
    if not len(pair):
        return None
    start, end = host["start_ns"][rows[pair]], host["start_ns"][rows[pair + 1]]
    launched = issued(trace)
    at = np.sort(launched.start_ns)
    count = np.searchsorted(at, end) - np.searchsorted(at, start)
    syncs = np.sort(calls["start_ns"][np.isin(calls["kind"], _SYNCS)])
    waits = np.searchsorted(syncs, end) > np.searchsorted(syncs, start)
    done = end.copy()
    which = np.searchsorted(start, launched.start_ns, "right") - 1
    inside = (which >= 0) & (launched.start_ns < end[which])
    np.maximum.at(done, which[inside], ops.end_ns[inside])
    work = np.bincount(which[inside], ops["duration_ns"][inside], len(start)).astype(np.int64)
    keep = count > 0
    if not keep.any():
        return None
    name = trace.text(host, "name", int(rows[0])) or ""
    return Stopwatches(
        row=rows[pair][keep],
        step=step[pair][keep],
        name=name,
        start_ns=start[keep],
        end_ns=end[keep],
        launches=count[keep],
        waits=waits[keep],
        device_end_ns=done[keep],
        work_ns=work[keep],
    )
