"""Whether it is launching, kernel by kernel, for which the device waits.

Time in which the device waits for the host has many reasons, and a step of many short kernels is
no proof for one. Launching is the reason where the host was then dispatching operators that
launch, or in Python that calls them. It is not where the host waited, computed or wrote, where one
function that launches nothing kept it, or where a single call of an operator launches them all.
"""

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents, within
from pinchpoint.analysis.host.frames import frames_for_readers, kernels_inside
from pinchpoint.analysis.replay.binding import HELD_UP_RATIO, bound
from pinchpoint.analysis.replay.predict import corrected_range_ns
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.analysis.time.accounting import breakdown
from pinchpoint.analysis.time.gaps import gaps
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis.evidence.device_work import busiest_place
from pinchpoint.diagnosis.finding import Location
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, KeptRows, Mask, Rows

# Of the time for which the device waits for the host: a cause of less than half is not the cause.
MOSTLY_RATIO = 0.5
# Device operations that one call of an operator launches; composite ones launch up to a dozen.
FEWEST_IN_ONE_CALL = 64
_NOT_THE_HOST = (GapKind.DEPENDENCY, GapKind.START_LATENCY, GapKind.PROFILER)
_LAUNCHING = (GapKind.DISPATCH, GapKind.PYTHON, GapKind.AUTOGRAD)


@dataclass(frozen=True, eq=False)
class LateLaunches:
    """Launches that the device waits for."""

    place: Location | None  # where it waits longest for them
    surely: bool  # whether it does without the profiler too, at the least that the step may take


@once_per_trace
def late_launches(trace: Trace) -> LateLaunches | None:
    """None where the device does not wait for the host, or for something else that it does."""
    if bound(trace).host_ratio < HELD_UP_RATIO:
        return None
    host, found = trace.host_ops, gaps(trace)
    if host is None or not len(found):
        return LateLaunches(None, _surely(trace))
    steps = judged_steps(trace)
    waits = steps.step_of(found.start_ns) >= 0
    waits &= ~np.isin(found.kind, _NOT_THE_HOST)
    row = found.row.copy()
    others = (row < 0) | (row >= len(host))
    row[others] = _caller(trace, row[others])
    launching = waits & np.isin(found.kind, _LAUNCHING)
    elsewhere = np.append(_launches_nothing(trace) | in_one_call(trace), False)
    launching &= ~elsewhere[row]
    late = found.duration_ns
    if late[launching].sum() < MOSTLY_RATIO * late[waits].sum():
        return None
    place, _ = busiest_place(trace, row[launching], late[launching])
    return LateLaunches(place, _surely(trace))


def _caller(trace: Trace, row: KeptRows) -> Ints:
    """The row of ``host_ops`` around a runtime call, by its position in ``host_rows``."""
    host, calls = trace.host_ops, trace.api_calls
    assert host is not None
    around = np.full(1, len(host)) if calls is None else calls.filled("host_op", len(host))
    around = np.append(around, len(host))
    call = np.clip(row - len(host), -1, len(around) - 1)
    found: Ints = around[call]
    return found


def _launches_nothing(trace: Trace) -> Mask:
    """Rows of ``host_ops`` inside a function of the program or a library that launches nothing."""
    host = trace.host_ops
    assert host is not None
    around = nearest(parents(host), frames_for_readers(trace))
    launched = np.append(kernels_inside(trace), 1)
    found: Mask = launched[around] == 0
    return found


@once_per_trace
def in_one_call(trace: Trace) -> Mask:
    """Rows of ``host_ops`` inside a call of an operator that launches a great many kernels."""
    host = trace.host_ops
    assert host is not None
    many = calls_of_many(trace)
    chosen = np.zeros(len(host), np.bool_)
    chosen[many] = True
    found: Mask = within(parents(host), chosen)[:-1]
    return found


@once_per_trace
def calls_of_many(trace: Trace) -> Rows:
    """Outermost calls of an ``aten::`` operator that launch FEWEST_IN_ONE_CALL or more."""
    host = trace.host_ops
    assert host is not None
    operator = host["kind"] == HostKind.OPERATOR
    native = np.array([name.startswith("aten::") for name in trace.names], np.bool_)
    many = operator & (kernels_inside(trace) >= FEWEST_IN_ONE_CALL)
    many &= native[host["name"]] if len(native) else many
    above = np.append(nearest(parents(host), many), len(host))[parents(host)]
    found: Rows = np.flatnonzero(many & (above == len(host)))
    return found


def _surely(trace: Trace) -> bool:
    """Whether the step at its shortest, without the profiler, is still longer than its work."""
    parts, least = breakdown(trace), corrected_range_ns(trace)
    if least is None:
        return True
    work = parts.of_group("device") + parts.of_group("exposed")
    return work < (1 - HELD_UP_RATIO) * least[0]
