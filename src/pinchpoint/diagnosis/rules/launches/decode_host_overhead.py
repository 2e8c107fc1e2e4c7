"""The host cannot launch a token's kernels as fast as the device finishes them.

## What it looks for
Inference steps with one query token (decode) that are made of many short kernels, each launched
from the host, where one graph launch would win much. The device has to be idle while they are
launched: where the host waits, computes or samples instead, that is the cause. Steps with longer
queries, and recordings without shapes of attention, are `launch-bound` at most. Where the device
may keep the step without the profiler, the confidence is low.

## Why it matters
A token at a small batch is a few hundred kernels of a few microseconds. Python, dispatcher and
launch cost more than that for each, so latency is the host's.

## How to fix it
Capture the decode step as a CUDA graph (a static cache makes its shapes fixed), or compile it with
`mode="reduce-overhead"`; serving engines have this built in. More requests at once hide it too.

## When to ignore it
Where kernels run back to back: then memory bandwidth is the limit.
"""

from collections.abc import Iterator

from pinchpoint.analysis.work.workload import workload
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import SHAPES_WITH_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.diagnosis.rules.launches._late_launches import late_launches
from pinchpoint.diagnosis.rules.launches._many_launches import many_launches
from pinchpoint.trace import Trace

RULE = Rule(
    needs=("api_calls", "device_ops", "host_ops"),
    record=SHAPES_WITH_DEVICE,
    parent="launch-bound",
    generic=True,
    knobs=("compile",),
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "python generate.py" "python generate_graph.py"',
)


def check(trace: Trace) -> Iterator[Found]:
    """Decode steps that the host launches kernel by kernel."""
    if not workload(trace).decodes:
        return
    launches, late = many_launches(trace), late_launches(trace)
    if launches is None or late is None:
        return
    yield Found(
        summary=(
            f"Each token is {launches.count:.0f} launches from the host, half of the kernels"
            f" shorter than {launches.median_ns / 1e3:.1f} µs"
        ),
        evidence=launches.evidence,
        cost_ns_per_step=None,
        changes=launches.as_graph,
        location=launches.place,
        confidence="high" if late.surely else "low",
        fix="Capture the decode step as a CUDA graph, with a static cache",
        hint='decode = torch.compile(decode, mode="reduce-overhead")',
    )
