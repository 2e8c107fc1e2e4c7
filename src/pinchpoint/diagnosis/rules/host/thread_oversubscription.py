"""Far more compute threads than cores.

## What it looks for
In a run folder: loader workers that each open several compute threads, together more than twice the
cores that the job may use, with threads of the machine queueing for cores; or a process whose own
pool is far larger than its share. Many threads alone are no evidence while cores are free for them,
and slow workers may have other reasons: without a run folder this is not checked.

## Why it matters
Threads that spin at a barrier while others wait for a core make everything slower than one thread
would be.

## How to fix it
Threads times processes within the cores: one compute thread a worker (`torch.set_num_threads(1)` in
`worker_init_fn`, or `OMP_NUM_THREADS=1`).

## When to ignore it
Where threads sleep, as those that wait for files do.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.mean.ways import Way
from pinchpoint.analysis.mean.whole_run import run_account
from pinchpoint.analysis.replay.predict import corrected_step_ns
from pinchpoint.analysis.run import data_wait_ns, host_looks, run_facts, workers_at_once
from pinchpoint.diagnosis.evidence.loading import most_won_ns
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import RUN_FOLDER
from pinchpoint.diagnosis.rule import ANY_PROGRAM, Framework, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=RUN_FOLDER,
    knobs=("omp_threads",),
    advice={Framework.OTHER: {"confirm": ANY_PROGRAM}},
)

TOO_MANY_RATIO = 2.0  # compute threads a core; up to two share a core with two hardware threads
QUEUEING_RATIO = 1.5  # runnable threads a core, sampled
LEAST_WAIT_RATIO = 0.1  # of the step; the sure part of the gain is 3 % then
SURE_SHARE, BEST_SHARE = 0.3, 0.9  # of the wait that goes when threads fit the cores


def check(trace: Trace) -> Iterator[Found | Small]:
    """Pools that are larger than the cores."""
    cores = run_facts(trace).cores_allowed
    if cores is None:
        raise NotChecked("the cores that the job may use are not recorded")
    yield from _workers(trace, cores)
    yield from _own_pool(trace, cores)


LEAST_RUN_RATIO = 0.1  # of a run, in which its main thread or workers had no core
OWN_RATIO = 0.6  # of the cores, used by the run itself: with less, others took them


def check_run(trace: Trace) -> Iterator[Found | Small]:
    """Processes and threads of a whole run that had no core because of each other."""
    samples, account = trace.run.samples if trace.run else None, run_account(trace)
    cores, usage = run_facts(trace).cores_allowed, samples.usage if samples else None
    cores = cores or (usage.cores_allowed if usage else None) or run_facts(trace).cores_there
    if samples is None or account is None or usage is None or not cores:
        raise NotChecked("the cores of the whole run are not recorded")
    from pinchpoint.analysis.mean.crew import crew

    team = crew(trace)
    lacking_ns = account.ways.get(Way.NO_CORE, 0)
    if team is not None and team.processes:
        queued = sum(member.queued_ns for member in team.members)
        lacking_ns = max(lacking_ns, queued // max(len(team.members), 1))
    each = [usage, *(child.usage for child in samples.children)]
    threads = sum(u.threads or 1 for u in each)
    used_ns = sum((u.user_ns or 0) + (u.kernel_ns or 0) for u in each)
    own = used_ns >= OWN_RATIO * cores * account.total_ns
    if lacking_ns < LEAST_RUN_RATIO * account.total_ns:
        if own and threads >= TOO_MANY_RATIO * cores:
            yield Small(lacking_ns / account.total_ns, LEAST_RUN_RATIO, "the run")
        return
    if not own:
        raise NotChecked("it lacked cores that it did not use itself: others had them")
    if threads < TOO_MANY_RATIO * cores:
        return
    from pinchpoint.diagnosis.evidence.run_places import of_run

    long = of_run(lacking_ns, account.total_ns)
    yield Found(
        summary=f"{len(each)} process{'es' if len(each) > 1 else ''} with {threads} threads share"
        f" {cores:g} cores: each is ready to run and has no core for about {long}",
        evidence=(
            Evidence("threads of all processes, in the end", threads, "count"),
            Evidence("cores allowed", cores, "count"),
            Evidence("on cores, all of them", used_ns, "ns"),
            Evidence("ready without a core, one of them", lacking_ns, "ns"),
            *_runnable(trace),
        ),
        cost_ns_per_step=lacking_ns,
        fix="Processes times threads within the cores: one compute thread in each worker process",
        hint="OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 python train.py",
        confirm=ANY_PROGRAM,
        consequence=f"at most {long}",
        run_ratio=lacking_ns / account.total_ns,
    )


def _workers(trace: Trace, cores: float) -> Iterator[Found | Small]:
    workers = workers_at_once(trace)
    threads = max((w.torch_threads or 0 for w in run_facts(trace).loader_workers), default=0)
    wait, step = data_wait_ns(trace), corrected_step_ns(trace)
    if threads < 2 or workers * threads < TOO_MANY_RATIO * cores or not _queueing(trace, cores):
        return
    if wait is None or not step:
        return
    if wait < LEAST_WAIT_RATIO * step:
        yield Small(wait / step, LEAST_WAIT_RATIO)
        return
    most = most_won_ns(trace, wait)
    yield Found(
        summary=(
            f"{workers} loader workers with {threads} compute threads each share {cores:g} cores;"
            f" the step waits {duration(wait)} for its batch"
        ),
        evidence=(
            Evidence("compute threads of the workers", workers * threads, "count"),
            Evidence("cores allowed", cores, "count"),
            *_runnable(trace),
            Evidence("wait for the batch", wait, "ns per step"),
        ),
        cost_ns_per_step=wait,
        saving_ns_per_step=(int(SURE_SHARE * most), int(BEST_SHARE * most)),
        fix="Give each worker one compute thread",
        hint="DataLoader(..., worker_init_fn=lambda i: torch.set_num_threads(1))",
        confirm="pinchpoint try --knob omp_threads=1 -- python train.py",
    )


def _own_pool(trace: Trace, cores: float) -> Iterator[Found]:
    threads = run_facts(trace).torch_threads
    if threads is None or threads < TOO_MANY_RATIO * cores:
        return
    if not _queueing(trace, cores):
        return
    yield Found(
        summary=f"torch computes with {threads} threads on {cores:g} cores",
        evidence=(
            Evidence("compute threads", threads, "count"),
            Evidence("cores allowed", cores, "count"),
            *_runnable(trace),
        ),
        cost_ns_per_step=None,
        consequence="threads wait for each other at the end of every parallel operator",
        confidence="medium",
        fix="Size the pool to the cores",
        hint=f"OMP_NUM_THREADS={max(int(cores), 1)} python train.py",
        confirm=f"pinchpoint try --knob omp_threads={max(int(cores), 1)} -- python train.py",
    )


def _queueing(trace: Trace, cores: float) -> bool:
    """Whether threads queued for cores; nobody sampled: not proven."""
    looks = host_looks(trace)
    found = np.zeros(0) if looks is None else looks.of("runnable_count")
    return bool(len(found)) and float(np.percentile(found, 75)) >= QUEUEING_RATIO * cores


def _runnable(trace: Trace) -> tuple[Evidence, ...]:
    looks = host_looks(trace)
    value = None if looks is None else looks.median("runnable_count")
    return () if value is None else (Evidence("runnable threads", round(value, 1), "median"),)
