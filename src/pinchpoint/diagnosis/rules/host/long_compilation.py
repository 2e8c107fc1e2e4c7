"""Compiling takes most of a run that is too short for it.

## What it looks for
Run folders of runs that have ended, in which at least half of the time passed before the third step
and most looks at the main thread until then found it compiling: `torch.compile`, Triton, JAX. A
compiler that runs again in later steps is `recompiles`. A trace alone, or a run that is still going
on, cannot show it.

## Why it matters
`torch.compile` of a model takes from ten seconds to minutes, and wins a few percent to a third of a
step. A job of a few dozen batches never earns that back.

## How to fix it
Run short jobs without it. Else keep what was compiled from run to run: `TORCHINDUCTOR_CACHE_DIR` on
a disk that stays, `torch.compiler.save_cache_artifacts`, or AOTInductor; compile one repeated block
instead of the whole model.

## When to ignore it
Where the run was cut short to look at it, and real ones take hours.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.evidence.whole_run import before_the_steps, compiles_first, works_first
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import Need, Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NotChecked, Rule
from pinchpoint.trace import Trace

RULE = Rule(
    needs=(),
    record=Record("a whole run: pinchpoint run python train.py", Need.ANOTHER),
    confirm=ANY_PROGRAM,
)

LEAST_RATIO = 0.5  # of the run: with less, the steps are worth more
MOSTLY_RATIO = 0.5  # of the looks before the third step that saw no import


def check(trace: Trace) -> Iterator[Found | Small]:
    """Compilation before the third step of a run."""
    course = trace.run.course if trace.run else None
    if course is None or course.before_ns is None:
        raise NotChecked("how long the whole run took is not recorded")
    seen = compiles_first(trace)
    if seen is None or seen.looks < MOSTLY_RATIO * works_first(trace):
        return
    if course.before_ns < LEAST_RATIO * course.total_ns:
        yield Small(course.before_ns / course.total_ns, LEAST_RATIO, "the run")
        return
    passed = before_the_steps(course)
    yield Found(
        summary=(
            f"{passed} passed before its third step,"
            f" {100 * seen.ratio:.0f} % of that in compilation"
            + (f": {seen.location}" if seen.location else "")
        ),
        evidence=(
            Evidence("before the third step", course.before_ns, "ns of the run"),
            Evidence("the run", course.total_ns, "ns"),
            Evidence("looks at the main thread compiling", seen.looks, f"of {seen.of}"),
        ),
        location=seen.location,
        fix="Do not compile in so short a job, or keep what was compiled from run to run",
        consequence=passed,
        run_ratio=seen.ratio * course.before_ns / course.total_ns,
        beside_steps=True,
    )
