"""A program on the CPU computes with fewer threads than it may use cores.

## What it looks for
In a run folder of a program without a device, and of one process: PyTorch's threads, set by
`torch.set_num_threads`, `OMP_NUM_THREADS` or a launcher (torchrun sets one), against the cores that
affinity and control group allow; and operators on tensors large enough to be shared out. Cores that
other programs used meanwhile are not counted on.

## Why it matters
Products and elementwise work on large tensors are shared among threads. Cores without one idle.

## How to fix it
`torch.set_num_threads(n)`, or `OMP_NUM_THREADS=n`, with as many as there are cores of the process.

## When to ignore it
Where the other cores are meant for others, or memory bounds the work.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.on_cpu import GRAIN_ELEMENTS, cpu_operators, first_elements
from pinchpoint.analysis.mean.ways import Way
from pinchpoint.analysis.mean.whole_run import MOSTLY_RATIO, RunPlace, run_account
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.analysis.run import free_cores, run_facts
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import RUN_FOLDER, Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NO_HINT, NotChecked, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import judged, too_small
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=RUN_FOLDER, knobs=("omp_threads",), advice=NO_HINT)

FEW_RATIO = 0.67  # of the cores: with three threads on four cores the fourth feeds them
IDEAL_SHARE = 0.5  # of the ideal gain: what memory bounds, threads do not divide


def check(trace: Trace) -> Iterator[Found | Small]:
    """Fewer threads than cores, and work to share out."""
    mine, facts = judged(trace), run_facts(trace)
    if mine is None:
        return
    threads, cores = facts.torch_threads, facts.cores_allowed
    if threads is None or cores is None:
        raise NotChecked("the threads and cores of the program are not recorded")
    if threads > FEW_RATIO * cores or (facts.processes or 1) > 1:
        return
    shared = mine & cpu_operators(trace).called & (first_elements(trace) >= GRAIN_ELEMENTS)
    spans = host_spans(trace, shared, "operators on large tensors")
    if spans is None:
        return
    free = free_cores(facts, cores)
    if small := too_small(trace, spans):
        if threads <= FEW_RATIO * free:
            yield small
        return
    if threads > FEW_RATIO * free:
        raise NotChecked(
            f"{threads} thread{'s' if threads > 1 else ''} on {cores:g} cores, of which other"
            f" programs used {facts.cores_of_others:.1f} meanwhile",
            Record("the same run while the machine has nothing else to do"),
            fits=True,
        )
    left = 1 - IDEAL_SHARE * (1 - threads / free)
    yield Found(
        summary=(
            f"{threads} thread{'s' if threads > 1 else ''} on {cores:g} cores compute what could be"
            f" shared out, {duration(spans.ns_per_step)} of the step"
        ),
        evidence=(
            Evidence("compute threads", threads, "count"),
            Evidence("cores allowed", cores, "count"),
            *spans.evidence,
        ),
        cost_ns_per_step=spans.ns_per_step,
        changes=(ScaleHostSpans(np.asarray(spans.rows), left),),
        location=spans.place,
        fix="Compute with as many threads as the program has cores",
        hint=f"torch.set_num_threads({max(int(cores), 1)})",
        confirm=f"pinchpoint try --knob omp_threads={max(int(cores), 1)} -- python train.py",
        confidence="medium",
    )


# What the libraries below NumPy and SciPy share out among threads by themselves.
_PRODUCTS = ("@", "dot()", "matmul()", "einsum()", "tensordot()", "inner()", "vdot()")
_LINEAR_ALGEBRA = "linalg"
LEAST_RUN_RATIO = 0.1  # of a run, at most, that more threads would win
ALONE_RATIO = 1.2  # cores used on average, by a program that computes with one thread


def check_run(trace: Trace) -> Iterator[Found | Small]:
    """Products of a whole run that one thread computes while other cores are allowed."""
    samples, account = trace.run.samples if trace.run else None, run_account(trace)
    usage, cores = samples.usage if samples else None, run_facts(trace).cores_allowed
    cores = cores or (usage.cores_allowed if usage else None)
    if samples is None or account is None or usage is None or usage.threads is None or not cores:
        raise NotChecked("the threads and cores of the program are not recorded")
    native = usage.threads - (usage.python_threads or 0)
    used = ((usage.user_ns or 0) + (usage.kernel_ns or 0)) / account.total_ns
    if cores < 2 or native > 0 or used > ALONE_RATIO or samples.children:
        return
    shared = [p for p in account.places if _is_product(p)]
    shared_ns = sum(p.ways.get(Way.OUTSIDE, 0) for p in shared)
    most_ns = round(shared_ns * (1 - 1 / cores))
    if most_ns < LEAST_RUN_RATIO * account.total_ns:
        yield Small(most_ns / account.total_ns, LEAST_RUN_RATIO, "the run")
        return
    at = shared[0].at
    where = None if at is None else Location(at.file, at.line, at.function)
    from pinchpoint.diagnosis.evidence.run_places import of_run

    long = of_run(most_ns, account.total_ns)
    yield Found(
        summary=f"One thread on {cores:g} cores computes products of matrices for"
        f" {duration(shared_ns)} of the run, most in {where}",
        evidence=(
            Evidence("products and linear algebra", shared_ns, "ns"),
            Evidence("threads beside Python's", max(native, 0), "count"),
            Evidence("cores allowed", cores, "count"),
            Evidence("cores used on average", round(used, 2), ""),
        ),
        cost_ns_per_step=most_ns,
        location=where,
        fix="Compute with as many threads as the program has cores",
        hint=f"OMP_NUM_THREADS={max(int(cores), 1)} python train.py  # or unset it",
        confirm=ANY_PROGRAM,
        consequence=f"at most {long}",
        run_ratio=most_ns / account.total_ns,
        confidence="medium",
    )


def _is_product(place: RunPlace) -> bool:
    call = place.call_ratio >= MOSTLY_RATIO and place.call.endswith(_PRODUCTS)
    inside = place.inside if place.inside_ratio >= MOSTLY_RATIO else None
    return call or (inside is not None and _LINEAR_ALGEBRA in inside)
