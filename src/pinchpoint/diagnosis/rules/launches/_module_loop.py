"""Module instances that are called many times a step: loops that stacks show."""

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents, within
from pinchpoint.analysis.host.launches import main_thread
from pinchpoint.analysis.steps.in_steps import per_step, rows_in_steps
from pinchpoint.diagnosis.evidence.device_work import busiest_place
from pinchpoint.diagnosis.finding import Location
from pinchpoint.diagnosis.rules.launches._many_launches import many_launches
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Rows

# Of one module instance in a step; shared modules of a model are called a few times.
FEWEST_TURNS = 16
# Of the launches of the forward pass, inside the calls; small shared modules have few. The backward
# pass repeats them outside of any module.
LEAST_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class ModuleLoop:
    """Calls of one module instance in the judged steps, most of what the forward pass launches."""

    name: str
    rows: Rows  # of host_ops
    turns: float  # a step
    place: Location | None  # of the function that loops


@once_per_trace
def module_loop(trace: Trace) -> ModuleLoop | None:
    """The module that is called most often; None where that is no loop."""
    host, launches = trace.host_ops, many_launches(trace)
    if host is None or launches is None:
        return None
    rows = np.flatnonzero((host["kind"] == HostKind.MODULE) & rows_in_steps(trace, host))
    if not len(rows):
        return None
    calls = np.bincount(host["name"][rows], minlength=len(trace.names))
    top = int(calls.argmax())
    turns = per_step(trace, int(calls[top]))
    if turns < FEWEST_TURNS:
        return None
    looped = calls * turns >= FEWEST_TURNS * calls[top]
    if _share_inside(trace, rows[looped[host["name"][rows]]], launches.rows) < LEAST_SHARE:
        return None
    mine = rows[host["name"][rows] == top]
    if _differ(trace, mine):
        return None
    around = parents(host)[mine]
    place, _ = busiest_place(trace, around, host["duration_ns"][mine].astype(np.int64))
    return ModuleLoop(trace.names[top], mine, turns, place)


def _differ(trace: Trace, calls: Rows) -> bool:
    """Whether calls of modules with one name are of several modules: what they contain differs.

    Classes that are made at run time number their instances each from 0.
    """
    host = trace.host_ops
    assert host is not None
    module = host["kind"] == HostKind.MODULE
    mine = np.zeros(len(host), np.bool_)
    mine[calls] = True
    around = np.append(nearest(parents(host), mine), len(host))[parents(host)]
    inner = np.flatnonzero(module & (around < len(host)))
    if not len(inner):
        return False
    in_one = np.unique(np.stack((around[inner], host["name"][inner])), axis=1)[0]
    most = int(np.bincount(in_one).max())
    return len(np.unique(host["name"][inner])) > most


def _share_inside(trace: Trace, modules: np.ndarray, launched: np.ndarray) -> float:
    """Share of launched device operations that come from inside these module calls."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    chosen = np.zeros(len(host), np.bool_)
    chosen[modules] = True
    inside = within(parents(host), chosen)
    by = ops.filled("host_op", len(host))[launched]
    forward = by[np.append(host["thread"] == main_thread(trace), True)[by]]
    return float(inside[forward].mean()) if len(forward) else 0.0
