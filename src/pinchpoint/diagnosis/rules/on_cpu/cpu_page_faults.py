"""Tensors of a program on the CPU get new memory from the kernel in every step.

## What it looks for
In a run folder of a program without a device: page faults of the process in each step, and the time
that the kernel worked for it meanwhile.

## Why it matters
The C library gives blocks of 32 MB and more, and the top of its heap, back to the kernel when they
are freed. The next tensor of that size gets pages that the kernel has to clear one by one, 4 KB at
a time, while an operator waits for them: half a microsecond each, two on virtual machines.

## How to fix it
Keep freed memory: `GLIBC_TUNABLES=glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184`,
or jemalloc or tcmalloc in `LD_PRELOAD`. Writing into tensors that are there (`out=`) needs none.

## When to ignore it
Where memory is so short that what is freed must go back.
"""

from collections.abc import Iterator

from pinchpoint.analysis.mean.ways import Way
from pinchpoint.analysis.mean.whole_run import run_account
from pinchpoint.analysis.run import run_facts
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import RUN_FOLDER
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NO_HINT, NotChecked, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import judged
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=RUN_FOLDER, knobs=("keep_memory",), advice=NO_HINT)

# A fault that clears a page of 4 KB at some 10 GB/s, and what it takes to get there: the least; on
# a virtual machine 2.2 µs were measured, of 26,600 faults a step that a fix brought to 1,800.
LEAST_FAULT_NS, MOST_FAULT_NS = 500, 2_500
LEAST_RATIO = 0.05  # of the step, at most: less is told by no recording with a profiler in it


def check(trace: Trace) -> Iterator[Found]:
    """Page faults that cost, by the kernel's time for the process."""
    if judged(trace) is None:
        return
    facts, step = run_facts(trace), steps(trace).typical_ns
    faults, kernel_ns = facts.page_faults_per_step, facts.kernel_ns_per_step
    if faults is None or kernel_ns is None:
        raise NotChecked("page faults of steps are not recorded")
    most = int(min(faults * MOST_FAULT_NS, kernel_ns))
    least = int(min(faults * LEAST_FAULT_NS, kernel_ns)) // max(facts.torch_threads or 1, 1)
    if not step or most < LEAST_RATIO * step:
        return
    yield Found(
        summary=(
            f"The kernel hands out new memory {faults:,.0f} times a step, for up to"
            f" {duration(most)} of it: what tensors free goes back to it"
        ),
        evidence=(
            Evidence("page faults", round(faults), "per step"),
            Evidence("time of the kernel for the process", round(kernel_ns), "ns per step"),
        ),
        cost_ns_per_step=most,
        saving_ns_per_step=(least, most),
        fix="Let the allocator keep what is freed",
        hint="GLIBC_TUNABLES=glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184",
        confirm="pinchpoint try --knob keep_memory -- python train.py",
        confidence="medium",
    )


LEAST_RUN_RATIO = 0.1  # of a run, in the kernel for page faults
# A fault clears 2 MB where the system gives huge pages, 0.2 ms at 10 GB/s.
MOST_HUGE_FAULT_NS = 300_000
COPY_BYTES_PER_NS = 2.0  # of a read or write, at least, by way of the kernel
LEAST_KERNEL_RATIO = 0.25  # of the time on cores: other programs have a few percent
LEAST_KERNEL_NS = 300_000_000  # a start with NumPy, pandas and SciPy takes half of it


def check_run(trace: Trace) -> Iterator[Found]:
    """Page faults of a whole run, by the share of the kernel in its time on cores."""
    samples, account = trace.run.samples if trace.run else None, run_account(trace)
    usage = samples.usage if samples else None
    if account is None or usage is None or usage.page_faults is None or not usage.kernel_ns:
        raise NotChecked("page faults of the run are not recorded")
    cpu_ns = usage.kernel_ns + (usage.user_ns or 0)
    copied_ns = ((usage.read_bytes or 0) + (usage.written_bytes or 0)) / COPY_BYTES_PER_NS
    faults_ns = min(usage.page_faults * MOST_HUGE_FAULT_NS, usage.kernel_ns - copied_ns)
    works_ns = sum(account.ways.get(way, 0) for way in (Way.INTERPRETER, Way.OUTSIDE, Way.NO_CORE))
    most = round(works_ns * faults_ns / cpu_ns)
    little = faults_ns < max(LEAST_KERNEL_RATIO * cpu_ns, LEAST_KERNEL_NS)
    if little or most < LEAST_RUN_RATIO * account.total_ns:
        return
    outside = [p for p in account.places if p.ways.get(Way.OUTSIDE, 0) and p.at is not None]
    at = max(outside, key=lambda p: p.ways[Way.OUTSIDE]).at if outside else None
    where = None if at is None else Location(at.file, at.line, at.function)
    from pinchpoint.diagnosis.evidence.run_places import of_run

    long = of_run(most, account.total_ns)
    yield Found(
        summary=f"The kernel hands out new memory {usage.page_faults:,} times, for up to {long}:"
        " what arrays free goes back to it" + (f"; most work is in {where}" if where else ""),
        evidence=(
            Evidence("page faults", usage.page_faults, "count"),
            Evidence("time of the kernel for the process", usage.kernel_ns, "ns"),
            Evidence("time of the process on cores", cpu_ns, "ns"),
        ),
        cost_ns_per_step=most,
        location=where,
        fix="Write into arrays that are there (out=), or let the allocator keep what is freed",
        hint="GLIBC_TUNABLES=glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184",
        confirm=ANY_PROGRAM,
        consequence=f"at most {long}",
        confidence="medium",
        run_ratio=most / account.total_ns,
    )
