"""XLA programs whose buffers come from the driver in each execution, by XLA's own spans."""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import parents
from pinchpoint.analysis.replay import RemoveHostTime
from pinchpoint.analysis.run import run_facts
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step, rows_in_steps
from pinchpoint.analysis.time.host_activity import BUFFERS, FROM_DRIVER_NS
from pinchpoint.diagnosis.evidence.device_work import busiest_place
from pinchpoint.diagnosis.evidence.host_spans import named
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Ints, Rows

VARIABLE = "XLA_PYTHON_CLIENT_ALLOCATOR"
FROM_DRIVER = "platform"  # its value for an allocator without a cache
_THUNKS = "GpuExecutable::ExecuteThunks"
MOST_STEPS_RATIO = 0.6  # of the steps: a pool that still grows does so in few


def from_the_driver(trace: Trace) -> Iterator[Found]:
    """Executions that wait for their buffers, where no allocator with a cache gave any."""
    host, steps = trace.host_ops, judged_steps(trace)
    if host is None or not len(steps) or _cached(trace):
        return
    rows = np.flatnonzero(named(trace, BUFFERS.__eq__) & rows_in_steps(trace, host))
    if not len(rows) or host["duration_ns"][rows].mean() < FROM_DRIVER_NS:
        return
    long = rows[host["duration_ns"][rows] >= FROM_DRIVER_NS]
    if len(np.unique(steps.step_of(host["start_ns"][long]))) < MOST_STEPS_RATIO * len(steps):
        return
    getting = host["duration_ns"][rows].astype(np.int64)
    free_start, free_end = _giving_back(trace, rows)
    cost = round(per_step(trace, int(getting.sum() + (free_end - free_start).sum())))
    place, _ = busiest_place(trace, rows, getting)
    setting = run_facts(trace).variables.get(VARIABLE)
    known = setting == FROM_DRIVER
    yield Found(
        summary=(
            f"XLA gets the buffers of {per_step(trace, len(rows)):.3g} executions a step from the"
            f" driver and gives them back{f' ({VARIABLE}={setting})' if setting else ''}: none"
            " came from an allocator that keeps them"
        ),
        evidence=(
            Evidence("getting buffers", round(per_step(trace, int(getting.sum()))), "ns per step"),
            Evidence(
                "giving them back, after the launches of an execution",
                round(per_step(trace, int((free_end - free_start).sum()))),
                "ns per step",
            ),
            Evidence("executions", round(per_step(trace, len(rows)), 2), "per step"),
            Evidence(
                "longest",
                int(getting.max()),
                "ns",
                int(host["start_ns"][rows[getting.argmax()]]),
                BUFFERS,
            ),
        ),
        cost_ns_per_step=cost,
        changes=(
            RemoveHostTime(
                np.append(host["start_ns"][rows], free_start),
                np.append(host.end_ns[rows], free_end),
            ),
        ),
        # Arrays that die between executions are given back there, which waits for the device and
        # has no span: up to all that the host does may be that.
        at_best=(RemoveHostTime(steps.start_ns, steps.end_ns),),
        location=place,
        confidence="high" if known else "medium",
        fix=f"Leave {VARIABLE} unset, so that XLA keeps the memory it has"
        + ("" if known else "; look where the program sets it, this recording does not hold it")
        + "; to share the device, give each process a part (XLA_PYTHON_CLIENT_MEM_FRACTION)",
        hint=f"env -u {VARIABLE} XLA_PYTHON_CLIENT_MEM_FRACTION=0.5 python train.py",
    )


def _cached(trace: Trace) -> bool:
    """Whether XLA's allocator marked what it gave in the steps: it does, the driver does not."""
    given, steps = trace.allocations, judged_steps(trace)
    if given is None:
        return False
    return bool((steps.step_of(given["time_ns"]) >= 0).any())


def _giving_back(trace: Trace, rows: Rows) -> tuple[Ints, Ints]:
    """From the last launch of an execution to its end: nothing else is left to do there."""
    host = trace.host_ops
    assert host is not None
    parent = parents(host)
    execution = parent[rows]
    launched = np.zeros(len(host) + 1, np.int64)
    thunks = np.flatnonzero(named(trace, lambda name: name.endswith(_THUNKS)))
    np.maximum.at(launched, parent[thunks], host.end_ns[thunks])
    execution = np.unique(execution[(execution < len(host)) & (launched[execution] > 0)])
    return launched[execution], host.end_ns[execution].astype(np.int64)
