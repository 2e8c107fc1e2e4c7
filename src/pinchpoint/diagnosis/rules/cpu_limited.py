"""Too few CPU cores: affinity, a quota or a small allotment.

## What it looks for
The launching thread stands still for milliseconds in work that takes microseconds, waiting for
nothing on the device, with no other Python thread of the program to blame, in a process that also
runs loader workers: it has lost its core to them. With a run folder also what it recorded of
affinity, quota and throttling.

## Why it matters
Every thread and process of the job shares the few cores. The loader and storage get the blame,
while the launching thread itself is starved.

## How to fix it
Let the job use its cores (`taskset -p PID`, Slurm's `--cpus-per-task`, the container's CPU quota),
and size pools and workers to what is allowed.

## When to ignore it
On a machine that is shared on purpose.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.in_steps import judged_steps, per_step
from pinchpoint.analysis.replay import RemoveHostTime, ScaleHostSpans
from pinchpoint.analysis.stalls import busy_python_threads, stalls
from pinchpoint.diagnosis.host_spans import host_spans, named
from pinchpoint.diagnosis.locate import location_of
from pinchpoint.diagnosis.rule import Evidence, Finding
from pinchpoint.trace import Trace

NEEDS = ("host_ops", "api_calls")
RECORD = "CPU activity with Python stacks, or a run folder: pinchpoint run"
PERIODIC = True

LEAST_STALL_RATIO = 0.1  # of the step
BUSY_RATIO = 0.5
_WORKERS = ("_MultiProcessingDataLoaderIter", "multiprocessing/queues.py")


def check(trace: Trace) -> Iterator[Finding]:
    """Stalls of the launching thread beside worker processes."""
    steps, host = judged_steps(trace), trace.host_ops
    if host is None or not len(steps) or busy_python_threads(trace, BUSY_RATIO):
        return
    held = stalls(trace)
    total = per_step(trace, int(held.excess_ns.sum()))
    length = float(np.mean(steps.end_ns - steps.start_ns))
    workers = any(w in n for n in trace.names for w in _WORKERS)
    if not len(held.rows) or not workers or total < LEAST_STALL_RATIO * length:
        return
    longest = int(np.argmax(held.excess_ns))
    row = int(held.rows[longest])
    loads = host_spans(
        trace, named(trace, np.array([n.startswith("enumerate(Data") for n in trace.names])), "wait"
    )
    yield Finding(
        summary=(
            f"The launching thread stands still for {total / 1e6:.1f} ms of the mean step:"
            " it loses its core, as when the job may use too few"
        ),
        evidence=(
            Evidence("stalls", round(total), "ns per step"),
            Evidence("stalls", round(per_step(trace, len(held.rows)), 2), "per step"),
            Evidence(
                "longest",
                int(held.excess_ns[longest]),
                "ns",
                int(host["start_ns"][row]),
                trace.text(host, "name", row),
            ),
        ),
        cost_ns_per_step=round(total),
        changes=(
            RemoveHostTime(held.end_ns - held.excess_ns, held.end_ns),
            *(() if loads is None else (ScaleHostSpans(loads.rows, 0.02),)),
        ),
        location=location_of(trace, row),
        confidence="medium",
        fix="Give the job its cores, and size workers and threads to what is allowed",
        hint="taskset -p $$; cat /sys/fs/cgroup/cpu.max  # what is allowed",
        confirm='pinchpoint bench ab -- "taskset -c 0-7 python train.py" "python train.py"',
    )
