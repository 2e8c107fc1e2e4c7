"""What rules about device work say alike: how much of it, the longest operation, and where."""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.in_steps import device_ops_in_steps, per_step
from pinchpoint.diagnosis.finding import Evidence, Location
from pinchpoint.diagnosis.locate import busiest_place
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Mask, Rows


@dataclass(frozen=True, eq=False)
class DeviceWork:
    """Device operations that the judged steps issued."""

    rows: Rows  # of device_ops
    count: float  # a step
    ns_per_step: int  # sum of their durations
    place: Location | None
    evidence: tuple[Evidence, ...]


def device_work(trace: Trace, wanted: Mask, what: str) -> DeviceWork | None:
    """The wanted rows of ``device_ops`` that judged steps issued; None without any."""
    ops = trace.device_ops
    if ops is None:
        return None
    rows = np.flatnonzero(wanted & device_ops_in_steps(trace))
    if not len(rows):
        return None
    took = ops["duration_ns"][rows].astype(np.int64)
    nowhere = 0 if trace.host_ops is None else len(trace.host_ops)
    place, _ = busiest_place(trace, ops.filled("host_op", nowhere)[rows].astype(np.intp), took)
    longest = int(rows[np.argmax(took)])
    total, count = round(per_step(trace, int(took.sum()))), per_step(trace, len(rows))
    evidence = (
        Evidence(what, total, "ns per step"),
        Evidence("operations", round(count, 2), "per step"),
        Evidence(
            "longest",
            int(took.max()),
            "ns",
            int(ops["start_ns"][longest]),
            trace.text(ops, "name", longest),
        ),
    )
    return DeviceWork(rows, count, total, place, evidence)


def device_time_per_step(trace: Trace) -> float:
    """Sum of the durations of all device operations that the judged steps issued, a step."""
    ops = trace.device_ops
    if ops is None:
        return 0.0
    return per_step(trace, int(ops["duration_ns"][device_ops_in_steps(trace)].sum()))
