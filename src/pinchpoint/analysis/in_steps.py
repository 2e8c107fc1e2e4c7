"""Which rows belong to the steps that are judged, and how much that is per step."""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.launches import issued
from pinchpoint.analysis.steps import steps
from pinchpoint.trace import Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask


@dataclass(frozen=True, eq=False)
class JudgedSteps:
    """Host spans of the complete steps; of the longest partial one where none is complete."""

    start_ns: Ints
    end_ns: Ints  # where the next step begins, so that what lies between belongs to the one before

    def __len__(self) -> int:
        return len(self.start_ns)

    def step_of(self, times: Ints) -> Ints:
        """Position of the step that a time on the host belongs to; -1 outside all of them."""
        at = np.searchsorted(self.start_ns, times, "right") - 1
        inside = (at >= 0) & (times < self.end_ns[at]) if len(self) else at >= 0
        return np.where(inside, at, -1)


@once_per_trace
def judged_steps(trace: Trace) -> JudgedSteps:
    """The steps that rules count in."""
    found = steps(trace)
    chosen = found.complete if found.complete.any() else found.typical
    end = np.append(found.host_start_ns[1:], found.host_end_ns[-1:])
    end = np.maximum(end, found.host_end_ns)
    return JudgedSteps(found.host_start_ns[chosen], end[chosen])


def rows_in_steps(trace: Trace, table: Table) -> Mask:
    """True for rows of a host-side table that start inside a judged step."""
    inside: Mask = judged_steps(trace).step_of(table["start_ns"]) >= 0
    return inside


@once_per_trace
def device_ops_in_steps(trace: Trace) -> Mask:
    """True for device operations that a judged step issued.

    What runs before the first operation with a recorded call, and has none itself, was issued
    before the recording began.
    """
    if trace.device_ops is None:
        return np.zeros(0, np.bool_)
    issue = issued(trace)
    inside: Mask = judged_steps(trace).step_of(issue.start_ns) >= 0
    if issue.linked.any():
        start = trace.device_ops["start_ns"]
        inside &= issue.linked | (start >= start[issue.linked].min())
    return inside


def per_step(trace: Trace, total: float) -> float:
    """A total over the judged steps as an amount per step."""
    return total / max(len(judged_steps(trace)), 1)
