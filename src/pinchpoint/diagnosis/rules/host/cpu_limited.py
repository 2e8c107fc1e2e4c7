"""Too few CPU cores: affinity, a quota or a small allotment.

## What it looks for
The launching thread stands still for milliseconds in work that takes microseconds, waiting for
nothing on the device, with no other Python thread of the program to blame, in a process that also
runs loader workers: it has lost its core to them. With a run folder also what it recorded: fewer
cores allowed than workers, on a machine that has more, with busy workers and a step that waits; or
a control group that was stopped for want of quota. Stalls alone may have other reasons (page
faults, another program), so their confidence is medium, and nothing is said where the run measured
that the thread seldom lacked a core. Waits for workers that have no cores to
share, and a thread that holds the interpreter's lock, are no lack of cores.

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

from pinchpoint.analysis.replay import RemoveHostTime, ScaleHostSpans
from pinchpoint.analysis.replay.predict import corrected_step_ns
from pinchpoint.analysis.run import (
    data_wait_ns,
    host_looks,
    run_facts,
    workers_at_once,
    workers_busy_ratio,
)
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step
from pinchpoint.analysis.time.stalls import busy_python_threads, stalls
from pinchpoint.diagnosis.evidence.device_work import location_of
from pinchpoint.diagnosis.evidence.host_spans import host_spans, named
from pinchpoint.diagnosis.evidence.loading import most_won_ns
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import Need, Record
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=Record("CPU activity with Python stacks, or a run folder: pinchpoint run", Need.STACKS),
    periodic=True,
    knobs=("omp_threads",),
)

# Of the step; a judgement: single long operators are taken for stalls by chance.
LEAST_STALL_RATIO = 0.1
# A thread in Python this much of the time holds the lock: gil-contention, not cores.
BUSY_RATIO = 0.5
# Of the step: half of the wait is taken as sure, which is then well above 3 %.
LEAST_WAIT_RATIO = 0.1
WORKING_RATIO = 0.7  # of their time, workers that cannot keep up prepare batches
SATURATED_RATIO = 0.8  # of the allowed cores, the run's processes used
THROTTLED_RATIO = 0.05  # of the time, the control group was stopped
STALLED_RATIO = 0.5  # of the time that the thread stood still, it lacked a core: the most of it
_WORKERS = ("_MultiProcessingDataLoaderIter", "multiprocessing/queues.py")


def check(trace: Trace) -> Iterator[Found | Small]:
    """Too few cores by what the run recorded, else by stalls of the launching thread."""
    recorded = list(_by_run_facts(trace))
    yield from recorded
    if not any(isinstance(one, Found) for one in recorded):
        yield from _by_stalls(trace)


def _by_run_facts(trace: Trace) -> Iterator[Found | Small]:
    """Fewer cores than workers, or a quota that stopped the program, and a step that waits."""
    facts, workers = run_facts(trace), workers_at_once(trace)
    cores, there = facts.cores_allowed, facts.cores_there
    wait, step, looks = data_wait_ns(trace), corrected_step_ns(trace), host_looks(trace)
    if cores is None or wait is None or not step:
        return
    stopped = looks.of("cgroup_throttled_ratio") if looks else np.zeros(0)
    throttled = float(stopped.mean()) if len(stopped) else 0.0
    working = workers_busy_ratio(trace)
    used = (looks.median("cpu_cores_used") if looks else None) or 0.0
    pressed = working >= WORKING_RATIO or used >= SATURATED_RATIO * cores
    restricted = there is not None and cores < there and cores < workers
    if not (restricted and pressed) and throttled < THROTTLED_RATIO:
        return
    if wait < LEAST_WAIT_RATIO * step:
        yield Small(wait / step, LEAST_WAIT_RATIO)
        return
    most = most_won_ns(trace, wait)
    yield Found(
        summary=(
            f"The job may use {cores:g} of {there} cores for {workers} loader workers and itself;"
            f" the step waits {duration(wait)} for its batch"
        ),
        evidence=(
            Evidence("cores allowed", cores, "count"),
            Evidence("cores of the machine", there or "not known", "count"),
            Evidence("loader workers", workers, "count"),
            *((Evidence("cores used by the run", round(used, 2), "count"),) if used else ()),
            Evidence("time that the quota stopped the program", round(throttled, 3), "ratio"),
            Evidence("wait for the batch", wait, "ns per step"),
        ),
        cost_ns_per_step=wait,
        saving_ns_per_step=(most // 2, most),
        fix="Give the job its cores, and size workers and threads to what is allowed",
        hint="taskset -p $$; cat /sys/fs/cgroup/cpu.max  # what is allowed",
        confirm='pinchpoint bench ab -- "python train.py" "taskset -c 0-7 python train.py"',
    )


def _had_a_core(trace: Trace, stalled_ns: float) -> bool:
    """Whether the run measured that its thread of the steps was seldom ready without a core: then
    stalls are waits for something else. Of some steps alone that is not known, and the whole is
    asked."""
    if trace.only_steps is not None:
        return True
    samples = trace.run.samples if trace.run else None
    if samples is None or samples.queued_ns is None or not samples.count:
        return False
    return samples.queued_ns / samples.count < STALLED_RATIO * stalled_ns


def _by_stalls(trace: Trace) -> Iterator[Found]:
    """Stalls of the launching thread beside worker processes."""
    if trace.api_calls is None:
        return
    steps, host = judged_steps(trace), trace.host_ops
    if host is None or not len(steps) or busy_python_threads(trace, BUSY_RATIO):
        return
    held = stalls(trace)
    total = per_step(trace, int(held.excess_ns.sum()))
    length = float(np.mean(steps.end_ns - steps.start_ns))
    if not len(held.rows) or total < LEAST_STALL_RATIO * length or _had_a_core(trace, total):
        return
    if not any(w in n for n in trace.names for w in _WORKERS):
        return
    longest = int(np.argmax(held.excess_ns))
    row = int(held.rows[longest])
    loads = host_spans(trace, named(trace, lambda name: name.startswith("enumerate(Data")), "wait")
    from pinchpoint.diagnosis.rules.host._disturbed import undisturbed_operators

    yield Found(
        summary=(
            f"The launching thread stands still for {duration(total)} of the mean recorded step:"
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
            *undisturbed_operators(trace, held),
            *(() if loads is None else (ScaleHostSpans(loads.rows, 0.02),)),
        ),
        location=location_of(trace, row),
        confidence="medium",
        fix="Give the job its cores, and size workers and threads to what is allowed",
        hint="taskset -p $$; cat /sys/fs/cgroup/cpu.max  # what is allowed",
        confirm='pinchpoint bench ab -- "taskset -c 0-7 python train.py" "python train.py"',
    )
