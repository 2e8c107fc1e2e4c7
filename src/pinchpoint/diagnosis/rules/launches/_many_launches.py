"""Steps of many short kernels, each launched from the host: what rules about them say alike."""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.frames import called_by_program
from pinchpoint.analysis.replay import Change, GraphLaunches, MergeDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps, per_step
from pinchpoint.analysis.tables.kernels import blocks_of_device_ops
from pinchpoint.analysis.time.host_waits import host_waits
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.diagnosis.evidence.device_work import location_of
from pinchpoint.diagnosis.finding import Evidence, Location
from pinchpoint.frozen import dataclass
from pinchpoint.trace import ApiKind, DeviceKind, Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Rows

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

    def as_one_call(self, trace: Trace, turns: int) -> tuple[Change, ...]:
        """The same with what each turn of a loop launches launched once for all its turns.

        Launches of one step that are alike are taken for those of different turns if there are as
        many; where a turn has several, the first of each turn are one, and so on.
        """
        ops = trace.device_ops
        assert ops is not None
        rows = self.rows[np.argsort(ops["start_ns"][self.rows], kind="stable")]
        which, count = _alike(trace, rows)
        order = np.argsort(which, kind="stable")
        nth = np.empty(len(rows), np.int64)
        nth[order] = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        in_a_turn = np.maximum(np.rint(count / turns), 1).astype(np.int64)
        of_a_loop = count[which] >= turns
        place = np.stack((which, nth % in_a_turn[which]), axis=1)[of_a_loop]
        group = np.unique(place, axis=0, return_inverse=True)[1].ravel()
        return (MergeDeviceOps(rows[of_a_loop], group), *self.as_graph)


def _alike(trace: Trace, rows: Rows) -> tuple[Ints, Ints]:
    """A number for launches of one step with the same operator, kernel and grid; how many each."""
    ops, host = trace.device_ops, trace.host_ops
    assert ops is not None
    step = np.searchsorted(judged_steps(trace).start_ns, ops["start_ns"][rows], "right")
    operator = np.zeros(len(rows), np.int64)
    if host is not None:
        by = launched_calls(trace).operator[rows]
        operator = np.append(host["name"].astype(np.int64), -1)[np.minimum(by, len(host))]
    same = np.stack((step, ops["name"][rows], blocks_of_device_ops(trace)[rows], operator), axis=1)
    _, which, count = np.unique(same, axis=0, return_inverse=True, return_counts=True)
    return which.ravel(), count


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
