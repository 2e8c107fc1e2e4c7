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

from pinchpoint.analysis.work.workload import workload
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import STACKS_AND_MODULES
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.diagnosis.rules.launches._late_launches import late_launches
from pinchpoint.diagnosis.rules.launches._many_launches import many_launches
from pinchpoint.trace import Trace

RULE = Rule(
    needs=("host_ops", "api_calls", "device_ops"),
    record=STACKS_AND_MODULES,
    parent="launch-bound",
)


def check(trace: Trace) -> Iterator[Found]:
    """Module instances that are called in a loop."""
    host, launches = trace.host_ops, many_launches(trace)
    if host is None or launches is None or workload(trace).decodes or not late_launches(trace):
        return
    from pinchpoint.diagnosis.rules.launches._module_loop import module_loop

    loop = module_loop(trace)
    if loop is None:
        return
    first, shortest = int(loop.rows[0]), int(host["duration_ns"][loop.rows].min())
    yield Found(
        summary=f"{loop.name} is called {loop.turns:.0f} × a step, in a Python loop",
        evidence=(
            Evidence(
                "calls of one module",
                round(loop.turns, 1),
                "per step",
                int(host["start_ns"][first]),
                loop.name,
            ),
            Evidence("shortest call", shortest, "ns"),
            *launches.evidence,
        ),
        cost_ns_per_step=None,
        changes=launches.as_graph,
        at_best=launches.as_one_call(trace, round(loop.turns)),
        location=loop.place if loop.place and loop.place.file else launches.place,
        fix="One call for all turns (a sequence, a batch dimension, vmap), or a CUDA graph of them",
    )
