"""A Python loop runs the same module once for each time step or element.

## What it looks for
Module instances that are called many times within one step of training or inference, one call after
another, with small kernels in each, that together launch most of what the forward pass launches;
and a device that waits for these launches. Layers that are many instances, and a small module that
many layers share, are no loop. Tokens of a generation come one after the other whatever the host
does, and are `decode-host-overhead`. Without modules in the recording no loop shows.

## Why it matters
Each turn of the loop costs the host all the launches of its body. The number of launches grows with
the sequence, while each kernel stays small.

## How to fix it
One library call for the sequence (`nn.LSTM` over it, `scan`, a cumulative form), batching the
elements, or a CUDA graph of the loop.

## When to ignore it
Where each turn does enough work to keep the device busy.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents, within
from pinchpoint.analysis.host.launches import main_thread
from pinchpoint.analysis.steps.in_steps import per_step, rows_in_steps
from pinchpoint.analysis.work.workload import workload
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import STACKS_AND_MODULES
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.diagnosis.rules.launches._late_launches import late_launches
from pinchpoint.diagnosis.rules.launches._many_launches import many_launches
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Rows

RULE = Rule(
    needs=("host_ops", "api_calls", "device_ops"),
    record=STACKS_AND_MODULES,
    parent="launch-bound",
)

# Of one module instance in a step; shared modules of a model are called a few times.
FEWEST_TURNS = 16
# Of the launches of the forward pass, inside the calls; small shared modules have few. The backward
# pass repeats them outside of any module.
LEAST_SHARE = 0.5


def check(trace: Trace) -> Iterator[Found]:
    """Module instances that are called in a loop."""
    host, launches = trace.host_ops, many_launches(trace)
    if host is None or launches is None or workload(trace).decodes or not late_launches(trace):
        return
    rows = np.flatnonzero((host["kind"] == HostKind.MODULE) & rows_in_steps(trace, host))
    if not len(rows):
        return
    calls = np.bincount(host["name"][rows], minlength=len(trace.names))
    top = int(calls.argmax())
    turns = per_step(trace, int(calls[top]))
    if turns < FEWEST_TURNS:
        return
    looped = calls * turns >= FEWEST_TURNS * calls[top]
    if _share_inside(trace, rows[looped[host["name"][rows]]], launches.rows) < LEAST_SHARE:
        return
    mine = rows[host["name"][rows] == top]
    if _differ(trace, mine):
        return
    first, shortest = int(mine[0]), int(host["duration_ns"][mine].min())
    yield Found(
        summary=f"{trace.names[top]} is called {turns:.0f} × a step, in a Python loop",
        evidence=(
            Evidence(
                "calls of one module",
                round(turns, 1),
                "per step",
                int(host["start_ns"][first]),
                trace.names[top],
            ),
            Evidence("shortest call", shortest, "ns"),
            *launches.evidence,
        ),
        cost_ns_per_step=None,
        changes=launches.as_graph,
        at_best=launches.as_one_call(trace, round(turns)),
        location=launches.place,
        fix="Use one call for the whole sequence, or a CUDA graph of the loop",
    )


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
