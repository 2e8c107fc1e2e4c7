"""Tensors of a program on the CPU get new memory from the kernel in every step.

## What it looks for
In a run folder of a program without a device: page faults of the process in each step (where no
steps were counted, in the whole run), and the time that the kernel worked for it meanwhile, as a
share of all its time on cores. Told is the place with most work on large tensors.

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

from pinchpoint.analysis.host.on_cpu import cpu_operators, first_elements
from pinchpoint.analysis.mean.ways import Way, imports
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.analysis.mean.whole_run import (
    MOSTLY_RATIO,
    NS_PER_US,
    RunPlace,
    main_spent,
    run_account,
)
from pinchpoint.analysis.run import run_facts
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.host_spans import HostSpans, host_spans
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import RUN_FOLDER
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NO_HINT, NotChecked, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import judged
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=RUN_FOLDER, knobs=("keep_memory",), advice=NO_HINT)

# A fault that clears a page of 4 KB at some 10 GB/s, and what it takes to get there: the least; on
# a virtual machine 2.2 µs were measured, of 26,600 faults a step that a fix brought to 1,800.
LEAST_FAULT_NS, MOST_FAULT_NS = 500, 2_500
LEAST_RATIO = 0.05  # of the step, at most: less is told by no recording with a profiler in it


def check(trace: Trace) -> Iterator[Found | Small]:
    """Page faults that cost, by the kernel's time for the process."""
    mine = judged(trace)
    if mine is None:
        return
    counted, step = _counted(trace), steps(trace).typical_ns
    if counted is None:
        raise NotChecked("page faults of steps are not recorded")
    most = round(counted.ratios[1] * (step or 0))
    if not step:
        return
    if most < LEAST_RATIO * step:
        yield Small(most / step, LEAST_RATIO)
        return
    # Of the step that is said: recorded beside others, a step may be several times as long.
    said = min(step_base_ns(trace) or step, step)
    spans = _on_large_tensors(trace, mine)
    place = (spans.place if spans else None) or _looked_at(trace)
    yield Found(
        summary=(
            f"The kernel hands out new memory {counted.faults:,.0f} times {counted.per}, for up to"
            f" {duration(most)} of each step: what tensors free goes back to it"
            + (f"; most work is in {place}" if place else "")
        ),
        evidence=(
            Evidence("page faults", round(counted.faults), counted.per),
            Evidence("time of the kernel for the process", round(counted.kernel_ns), "ns"),
            *(Evidence(*took) for took in counted.beside),
            *(spans.evidence[:1] if spans else ()),
        ),
        cost_ns_per_step=most,
        saving_ns_per_step=(round(counted.ratios[0] * said), round(counted.ratios[1] * said)),
        location=place,
        fix="Write into tensors that are there (out=), or let the allocator keep what is freed",
        hint="GLIBC_TUNABLES=glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184",
        confirm="pinchpoint try --knob keep_memory -- python train.py",
        confidence="medium",
    )


@dataclass(frozen=True)
class _Counted:
    """Faults and the kernel's time for the process, and what they are of a step."""

    faults: float
    kernel_ns: float
    per: str  # step, or the whole run
    ratios: tuple[float, float]
    beside: tuple[tuple[str, int, str], ...] = ()


# Of the kernel's time, at least, that goes with the faults: with the allocator told to keep what is
# freed, a step of 2,083 ms took 960, where 42 % of the time on cores was the kernel's.
SURE_SHARE = 0.5


def _counted(trace: Trace) -> _Counted | None:
    """By the steps that were counted, else by the whole run; None where neither was.

    As shares of the process's own time on cores: where other programs have them, too, a step lasts
    several times as long, and all of its parts do.
    """
    facts = run_facts(trace)
    faults, kernel_ns = facts.page_faults_per_step, facts.kernel_ns_per_step
    if faults is not None and kernel_ns is not None:
        spent_ns = min(faults * MOST_FAULT_NS, kernel_ns)
        if facts.user_ns_per_step is not None:
            cpu_ns = max(facts.user_ns_per_step + kernel_ns, 1)
            known = (("time of the process on cores", round(cpu_ns), "ns per step"),)
            return _Counted(faults, kernel_ns, "a step", _shares(spent_ns, cpu_ns), known)
        step, threads = steps(trace).typical_ns or 1, max(facts.torch_threads or 1, 1)
        least_ns = min(faults * LEAST_FAULT_NS, kernel_ns) / threads
        return _Counted(faults, kernel_ns, "a step", (least_ns / step, min(spent_ns / step, 1.0)))
    usage = facts.samples.usage if facts.samples else None
    if facts.samples is None or usage is None or usage.page_faults is None or not usage.kernel_ns:
        return None
    started = (one for one in main_spent(facts.samples) if imports(one.frames))
    started_ns = NS_PER_US * sum(one.on_core_us for one in started)
    cpu_ns = max(usage.kernel_ns + (usage.user_ns or 0) - started_ns, usage.kernel_ns)
    later_ns = max(usage.kernel_ns - LEAST_KERNEL_NS, 0)
    spent_ns = min(usage.page_faults * MOST_FAULT_NS, later_ns)
    known = (("time of the process on cores, less imports", cpu_ns, "ns"),)
    shares = _shares(spent_ns, cpu_ns)
    return _Counted(usage.page_faults, usage.kernel_ns, "in the run", shares, known)


def _shares(spent_ns: float, cpu_ns: float) -> tuple[float, float]:
    return SURE_SHARE * spent_ns / cpu_ns, spent_ns / cpu_ns


# The C library gives blocks of so many bytes back at once, and the top of its heap with twice that.
GIVEN_BACK_BYTES = 32 << 20
LEAST_BYTES = 1 << 20  # smaller ones are a few hundred pages, which the heap keeps
FLOAT_BYTES = 4  # of an element, as most have; types are not always recorded


def _outside(trace: Trace) -> RunPlace | None:
    """Where looks found most work outside of the interpreter."""
    account = run_account(trace)
    places = () if account is None else account.places
    outside = [p for p in places if p.ways.get(Way.OUTSIDE, 0) and p.at is not None]
    return max(outside, key=lambda p: p.ways[Way.OUTSIDE], default=None)


def _looked_at(trace: Trace) -> Location | None:
    place = _outside(trace)
    at = place.at if place else None
    return None if at is None else Location(at.file, at.line, at.function)


def _call_looked_at(trace: Trace) -> str:
    """The call, or the library's function, that has most of that place's looks; empty for none."""
    place = _outside(trace)
    if place is None:
        return ""
    if place.inside and place.inside_ratio >= MOSTLY_RATIO:
        return place.inside
    return place.call if place.call_ratio >= MOSTLY_RATIO else ""


def _on_large_tensors(trace: Trace, mine: Mask) -> HostSpans | None:
    """Operators on tensors that the C library gives back, else on those of a megabyte and more."""
    called, size = mine & cpu_operators(trace).called, FLOAT_BYTES * first_elements(trace)
    for least in (GIVEN_BACK_BYTES, LEAST_BYTES):
        if (called & (size >= least)).any():
            return host_spans(trace, called & (size >= least), "operators on large tensors")
    return None


LEAST_RUN_RATIO = 0.1  # of a run, in the kernel for page faults
# A fault clears 2 MB where the system gives huge pages, 0.2 ms at 10 GB/s.
MOST_HUGE_FAULT_NS = 300_000
COPY_BYTES_PER_NS = 2.0  # of a read or write, at least, by way of the kernel
LEAST_KERNEL_RATIO = 0.25  # of the time on cores: other programs have a few percent
LEAST_KERNEL_NS = 300_000_000  # a start with NumPy, pandas and SciPy takes half of it


def check_run(trace: Trace) -> Iterator[Found | Small]:
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
    if little:
        return
    if most < LEAST_RUN_RATIO * account.total_ns:
        yield Small(most / account.total_ns, LEAST_RUN_RATIO, "the run")
        return
    where, call = _looked_at(trace), _call_looked_at(trace)
    from pinchpoint.diagnosis.evidence.known_calls import advice_for
    from pinchpoint.diagnosis.evidence.run_places import of_run

    long = of_run(most, account.total_ns)
    yield Found(
        summary=f"The kernel hands out new memory {usage.page_faults:,} times, for up to {long}:"
        " what arrays free goes back to it"
        + (f"; most work is in {where}" + (f", at {call}" if call else "") if where else ""),
        evidence=(
            Evidence("page faults", usage.page_faults, "count"),
            Evidence("time of the kernel for the process", usage.kernel_ns, "ns"),
            Evidence("time of the process on cores", cpu_ns, "ns"),
        ),
        cost_ns_per_step=most,
        location=where,
        fix="Write into arrays that are there (out=), or let the allocator keep what is freed"
        + advice_for(call),
        hint="GLIBC_TUNABLES=glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184",
        confirm=ANY_PROGRAM,
        consequence=f"at most {long}",
        confidence="medium",
        run_ratio=most / account.total_ns,
    )
