"""Which rows belong to the steps that are judged, and how much that is per step."""

from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.launches import issued, main_thread
from pinchpoint.analysis.steps.module_nesting import outermost
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask
from pinchpoint.trace.intervals import flatten

# ------------------------------------------------------------------------------------------------
# Counting events by the windows they fall into, steps above all.


Times = NDArray[np.int64]


def window_of(times: Times, start_ns: Times, end_ns: Times) -> NDArray[np.intp]:
    """The window ``[start, end)`` that holds each time; ``len(start_ns)`` where none does.

    Windows are sorted and do not overlap; shape of ``times``.
    """
    which = np.searchsorted(start_ns, times, "right") - 1
    inside = (which >= 0) & (times < np.append(end_ns, 0)[which])
    found: NDArray[np.intp] = np.where(inside, which, len(start_ns))
    return found


def inside(times: Times, start_ns: Times, end_ns: Times) -> NDArray[np.bool_]:
    """Whether each time falls into any window: a mask of rows for the tables of this package."""
    return window_of(times, start_ns, end_ns) < len(start_ns)


def sum_per_window(
    times: Times, start_ns: Times, end_ns: Times, values: Times | None = None
) -> Times:
    """How many of the times, or the sum of their values, fall into each window."""
    total = np.zeros(len(start_ns) + 1, np.int64)
    np.add.at(total, window_of(times, start_ns, end_ns), 1 if values is None else values)
    return total[:-1]


# ------------------------------------------------------------------------------------------------
# Which rows belong to the steps that are judged, and how much that is per step.


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
    known = _rows_in_steps(trace)
    if table not in known:
        known[table] = judged_steps(trace).step_of(table["start_ns"]) >= 0
        known[table].flags.writeable = False
    return known[table]


@once_per_trace
def _rows_in_steps(trace: Trace) -> WeakKeyDictionary[Table, Mask]:
    return WeakKeyDictionary()


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


# ------------------------------------------------------------------------------------------------
# The answer of a question that a recording cannot answer, and recordings that answer none.


@dataclass(frozen=True)
class NotRecorded:
    """Why there is no answer, and what to record so that there is one."""

    why: str
    record: str


FEWEST_OPERATIONS = 10  # of the device; a single layer of a network has more
# Of the time in which anything was recorded: operations that fill it are what the program does,
# however few they are.
MOSTLY_AT_WORK_RATIO = 0.5
# Of work that fills the time from the first operation of the device on: calls and what lies between
# them take micro- to milliseconds, so that less may be one lone operation.
LEAST_WORK_NS = 10_000_000
_OF_THE_PROGRAM = (HostKind.OPERATOR, HostKind.PYTHON, HostKind.ANNOTATION)


def says_too_little(trace: Trace) -> bool:
    """Whether timed rows are there, and so few of the program that no share of them tells."""
    host, ops = trace.host_ops, trace.device_ops
    rows = sum(len(table) for table in (host, ops, trace.api_calls) if table is not None)
    if (
        not rows
        or steps(trace).how != "none"
        or (ops is not None and len(ops) >= FEWEST_OPERATIONS)
    ):
        return False
    if host is not None and np.isin(host["kind"], _OF_THE_PROGRAM).any():
        return False
    return not _fill_the_time(ops, trace.api_calls)


def _fill_the_time(ops: Table | None, calls: Table | None) -> bool:
    """Whether the device was at work most of the time: from the first call on, or from its first
    operation on and for long."""
    if ops is None or not len(ops):
        return False
    first, last = int(ops["start_ns"].min()), int(ops.end_ns.max())
    at_work = flatten(ops["start_ns"], ops.end_ns).total
    if at_work >= max(LEAST_WORK_NS, MOSTLY_AT_WORK_RATIO * (last - first)):
        return True
    if calls is None or not len(calls):
        return False
    first, last = min(first, int(calls["start_ns"].min())), max(last, int(calls.end_ns.max()))
    return at_work >= MOSTLY_AT_WORK_RATIO * (last - first) > 0


# ------------------------------------------------------------------------------------------------
# The phases of a step, where the ranges that a program marks are all that was recorded.


def phases(trace: Trace, *, in_marks: bool = False) -> tuple[tuple[str, float], ...]:
    """Name and nanoseconds a step of the outer ranges on the main thread, longest first.

    With ``in_marks``, of those within the marks of whole steps, which are none then.
    """
    host = trace.host_ops
    if host is None or not len(host):
        return ()
    mine = (host["kind"] == HostKind.ANNOTATION) & (host["thread"] == main_thread(trace))
    if in_marks and trace.steps is not None:
        mine &= ~np.isin(host["start_ns"], trace.steps["start_ns"])
    rows = outermost(host.take(mine & rows_in_steps(trace, host)))
    if not len(rows):
        return ()
    total = np.bincount(rows["name"], weights=rows["duration_ns"])
    longest = np.argsort(-total, kind="stable")
    return tuple((trace.names[n], per_step(trace, float(total[n]))) for n in longest if total[n])


def only_ranges(trace: Trace) -> bool:
    """Whether ranges that people annotated are all that was recorded of most of a step."""
    host = trace.host_ops
    if host is None or not len(host) or (trace.device_ops is not None and len(trace.device_ops)):
        return False
    if (host["kind"][host["thread"] == main_thread(trace)] != HostKind.ANNOTATION).any():
        return False
    lasting = steps(trace).typical_ns or 0
    return 2 * sum(ns for _, ns in phases(trace)) >= lasting > 0
