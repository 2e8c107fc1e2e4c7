"""Collectives of one rank: how much each moved, how fast, and how much of it nothing hid.

One rank's time includes waiting for the others, so only the fastest call tells about the link.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.collective_arguments import bus_factor, collective_arguments
from pinchpoint.analysis.in_steps import device_ops_in_steps, judged_steps
from pinchpoint.analysis.launches import issued
from pinchpoint.trace import DeviceKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Ints, Rows
from pinchpoint.trace.intervals import covered_before, flatten


@dataclass(frozen=True, eq=False)
class Collectives:
    """Collectives that the judged steps issued; arrays have one element each, in time order."""

    rows: Rows  # of device_ops
    step: Ints  # position of the judged step
    bytes: Ints  # message size; 0 where not recorded
    group_size: Ints  # ranks in the group; 0 where not recorded
    duration_ns: Ints
    exposed_ns: Ints  # time of each during which this rank computed nothing
    kind: NDArray[np.str_]  # allreduce, allgather, …

    def bus_bytes_per_s(self) -> Floats:
        """Bus bandwidth of each call; nan where size, group or traffic is not known."""
        known = (self.bytes > 0) & (self.duration_ns > 0)
        rate = self.bytes / np.where(known, self.duration_ns, 1) * 1e9
        return np.where(known, rate * bus_factor(self.kind, self.group_size), np.nan)


@once_per_trace
def collectives(trace: Trace) -> Collectives | None:
    """The collectives of the judged steps; None where there are none."""
    ops = trace.device_ops
    if ops is None or not len(ops):
        return None
    step = judged_steps(trace).step_of(issued(trace).start_ns)
    rows = np.flatnonzero((ops["kind"] == DeviceKind.COLLECTIVE) & device_ops_in_steps(trace))
    if not len(rows):
        return None
    computing = ops["kind"] == DeviceKind.KERNEL
    busy = flatten(ops["start_ns"][computing], ops.end_ns[computing])
    start, end = ops["start_ns"][rows], ops.end_ns[rows]
    known = collective_arguments(trace)
    kinds, texts = ops.filled("collective", -1)[rows], ops.filled("collective_args", -1)[rows]
    hidden = covered_before(busy, end) - covered_before(busy, start)
    asked = [known[pair] for pair in zip(kinds.tolist(), texts.tolist(), strict=True)]
    return Collectives(
        rows,
        step[rows],
        np.array([a.bytes or 0 for a in asked], np.int64),
        np.array([a.group_size or 0 for a in asked], np.int64),
        end - start,
        end - start - hidden,
        np.array([a.kind for a in asked], np.str_),
    )
