"""A program on the CPU computes with more threads than there are cores for them.

## What it looks for
In a run folder of a program without a device: PyTorch's threads against the cores that affinity and
control group allow, less those that other programs used meanwhile; and operators on tensors large
enough to be shared out. What fewer threads would give does not show in one run: it stays undecided,
with the trial that tells.

## Why it matters
An operator ends with the last of its threads. One that has no core waits for one, some
milliseconds at a time, and the others wait for it, turning in place on the cores that they have.

## How to fix it
`OMP_NUM_THREADS=n`, or `torch.set_num_threads(n)`, with as many as there are cores free. In a
container with a quota PyTorch begins as many as the machine has cores. Where the cores have to be
shared, `OMP_WAIT_POLICY=passive` lets threads sleep while they wait, and others have the cores
meanwhile; `pinchpoint bench` measures so: its steps can be shorter than those that were recorded.

## When to ignore it
Where the machine was busy by accident.
"""

from collections.abc import Iterator

from pinchpoint.analysis.host.on_cpu import GRAIN_ELEMENTS, cpu_operators, first_elements
from pinchpoint.analysis.run import free_cores, run_facts
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import RUN_FOLDER, Record
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import judged, too_small
from pinchpoint.trace import Trace

RULE = Rule(needs=("host_ops",), record=RUN_FOLDER, knobs=("omp_threads",), advice=NO_HINT)

# Of the threads, which others left a core to: two threads on two cores of which other programs used
# 1.8 took 20 to 30 times as long as one thread there (small products, PyTorch 2.14).
FREE_RATIO = 0.5


def check(trace: Trace) -> Iterator[Found]:
    """More threads than cores, and work that they share."""
    mine, facts = judged(trace), run_facts(trace)
    if mine is None:
        return iter(())
    threads, cores = facts.torch_threads, facts.cores_allowed
    if threads is None or cores is None:
        raise NotChecked("the threads and cores of the program are not recorded")
    free = max(free_cores(facts, cores), 0.0)
    if threads < 2 or (threads <= cores and free > FREE_RATIO * threads):
        return iter(())
    shared = mine & cpu_operators(trace).called & (first_elements(trace) >= GRAIN_ELEMENTS)
    spans = host_spans(trace, shared, "operators on large tensors")
    if spans is None or too_small(trace, spans):
        return iter(())
    others = f", of which other programs used {cores - free:.1f}" if free < cores else ""
    less = max(int(free), 1)
    raise NotChecked(
        f"{threads} threads compute together on {cores:g} cores{others}: each operator waits for"
        " the last of them, and what fewer would give does not show",
        Record(
            f"the result of a trial: pinchpoint try --knob omp_threads={less} -- python train.py,"
            " or a run with OMP_WAIT_POLICY=passive, in which threads sleep while they wait"
        ),
        fits=True,
    )
