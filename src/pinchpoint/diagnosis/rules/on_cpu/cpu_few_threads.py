"""A program on the CPU computes with fewer threads than it may use cores.

## What it looks for
In a run folder of a program without a device, and of one process: PyTorch's threads, set by
`torch.set_num_threads`, `OMP_NUM_THREADS` or a launcher (torchrun sets one), against the cores that
affinity and control group allow; and operators on tensors large enough to be shared out.

## Why it matters
Products and elementwise work on large tensors are shared among threads. Cores without one idle.

## How to fix it
`torch.set_num_threads(n)`, or `OMP_NUM_THREADS=n`, with as many as there are cores of the process.

## When to ignore it
Where the other cores are meant for others, or memory bounds the work.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.on_cpu import cpu_operators
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.analysis.run import run_facts
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import RUN_FOLDER
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import (
    GRAIN_ELEMENTS,
    first_elements,
    is_material,
    judged,
)
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=RUN_FOLDER, knobs=("omp_threads",), advice=NO_HINT)

FEW_RATIO = 0.67  # of the cores: with three threads on four cores the fourth feeds them
IDEAL_SHARE = 0.5  # of the ideal gain: what memory bounds, threads do not divide


def check(trace: Trace) -> Iterator[Found]:
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
    if spans is None or not is_material(trace, spans):
        return
    left = 1 - IDEAL_SHARE * (1 - threads / cores)
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
