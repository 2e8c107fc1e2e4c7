"""Steps of many short kernels, each launched from the host: what rules about them say alike."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.frames import called_by_program
from pinchpoint.analysis.replay import Change, GraphLaunches
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.analysis.time.host_waits import host_waits
from pinchpoint.diagnosis.evidence.device_work import location_of
from pinchpoint.diagnosis.finding import Evidence, Location
from pinchpoint.trace import ApiKind, DeviceKind, Table, Trace, once_per_trace

SHORT_KERNEL_NS = 20_000  # an operator costs the host 5 to 20 µs; longer kernels hide that
FEWEST_LAUNCHES = 20  # a step with fewer is not bound by the number of launches


@dataclass(frozen=True, eq=False)
class ManyLaunches:
    """Kernels that the judged steps launch one by one."""

    rows: NDArray[np.intp]  # of device_ops
    count: float  # a step
    median_ns: int
    place: Location | None  # of a kernel of median length
    evidence: tuple[Evidence, ...]

    @property
    def as_graph(self) -> tuple[Change, ...]:
        """The same kernels as one graph launch a step."""
        return (GraphLaunches(self.rows),)


@once_per_trace
def many_launches(trace: Trace) -> ManyLaunches | None:
    """The launches of the judged steps; None if they are few or their kernels long."""
    ops, calls = trace.device_ops, trace.api_calls
    if ops is None or calls is None or not len(calls):
        return None
    launched = ops.known("api_call") & device_ops_in_steps(trace)
    launched &= calls["kind"][ops.filled("api_call", 0)] != ApiKind.GRAPH_LAUNCH
    launched &= np.isin(ops["kind"], (DeviceKind.KERNEL, DeviceKind.MEMSET))
    launched &= ~_waiting_or_allocating(trace, ops)
    rows = np.flatnonzero(launched)
    count = per_step(trace, len(rows))
    if count < FEWEST_LAUNCHES:
        return None
    duration = ops["duration_ns"][rows]
    median = int(np.median(duration))
    if median > SHORT_KERNEL_NS:
        return None
    one = int(rows[np.argmin(np.abs(duration - median))])
    host_op = ops.value("host_op", one)
    evidence = (
        Evidence("launches", round(count, 1), "per step"),
        Evidence(
            "a kernel of median length",
            int(ops["duration_ns"][one]),
            "ns",
            int(ops["start_ns"][one]),
            trace.text(ops, "name", one),
        ),
        Evidence(
            "device time of these kernels",
            round(per_step(trace, int(duration.sum()))),
            "ns per step",
        ),
    )
    place = None if host_op is None else location_of(trace, int(host_op))
    return ManyLaunches(rows, count, median, place, evidence)


def _waiting_or_allocating(trace: Trace, ops: Table) -> NDArray[np.bool_]:
    """Operations launched by a call that also waits for the device or allocates memory: no
    graph can hold it."""
    host, calls = trace.host_ops, trace.api_calls
    if host is None or calls is None:
        return np.zeros(len(ops), np.bool_)
    act = called_by_program(trace)
    waits = host_waits(trace)
    buying = calls["kind"] == ApiKind.MALLOC
    hindered = np.zeros(len(host) + 1, np.bool_)
    hindered[act[waits.host_op]] = True
    hindered[act[calls.filled("host_op", len(host))[buying]]] = True
    hindered[len(host)] = False
    result: NDArray[np.bool_] = hindered[act[ops.filled("host_op", len(host))]]
    return result
