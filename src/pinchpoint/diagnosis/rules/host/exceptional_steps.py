"""A few steps take far longer than the others, and no other rule says why.

## What it looks for
Steps that are much longer than the usual ones of their kind, in a recording of four complete steps
or more; fewer leave it undecided, unless the run around them was timed. What fills the difference
comes from the same accounting as every step's: what the device waited for and what the host did
meanwhile, or which device work grew, with its place. Only a part of the mean step that is worth
fixing is told, and a single step only where it is twice as long as usual or loses more than the
operating system takes now and then. Where the run around the recording was timed, steps in which
the host did the usual work more slowly are none if those that were timed are seldom as long: a host
that has to keep up is slower while it is recorded. On a CPU a single step in which the same
operators took longer is none where the run around the recording was timed: it may have had no core,
and the steps of the run say whether it comes again. Without such a run, steps on a CPU that took
longer with no more operators and no larger tensors, at no place and at no fixed distance, leave it
undecided. Where `pinchpoint run` sampled the whole run, its far steps are told from that: how often
they come, and the line that was running. Where nothing is trained, and most of such steps passes
inside of a model that is called, a request begins in them: whether that work is needed is left
open.

## Why it matters
Throughput is set by the mean step. One step of 300 ms among thirty of 27 costs a quarter of it,
and the typical step does not show that.

## How to fix it
Do what fills those steps less often, in a thread or process of its own, or before the loop.

## When to ignore it
Where the step is known to come much more rarely than in the recording: at the end of an epoch, say.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.on_cpu import computes_on_cpu, first_elements
from pinchpoint.analysis.mean.mean_step import (
    ExceptionalCause,
    MeanStep,
    at_the_rate_of_the_run,
    mean_step,
    timed_steps_ns,
    unrecorded_excess_ns,
)
from pinchpoint.analysis.mean.rare_steps import rare_causes
from pinchpoint.analysis.mean.step_kinds import FEWEST_STEPS, SAME_WORK_RATIO
from pinchpoint.analysis.replay import RemoveHostTime
from pinchpoint.analysis.steps.steps import IRREGULAR_RATIO, steps
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis.evidence.awaited import kept_lock
from pinchpoint.diagnosis.evidence.exceptions import (
    LESS_OFTEN,
    advice,
    evidence,
    location,
    sentence,
)
from pinchpoint.diagnosis.evidence.first_of_requests import is_work_of_a_model
from pinchpoint.diagnosis.evidence.known_ways import with_known_way
from pinchpoint.diagnosis.evidence.loading import loads
from pinchpoint.diagnosis.evidence.rare import found_of, material, rare_and_small, rare_found
from pinchpoint.diagnosis.evidence.rare import location as located
from pinchpoint.diagnosis.finding import Found, Small
from pinchpoint.diagnosis.record import MORE_STEPS, Record
from pinchpoint.diagnosis.rule import MATERIAL_STEP_RATIO, NotChecked, Rule
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=MORE_STEPS, periodic=True, residual=True)

# A scheduler's slice is 1 to 4 ms, the interpreter's switch interval 5 ms: what happens to any
# process now and then. One step that loses more has a reason of its own.
INCIDENT_NS = 10_000_000
LEAST_RATIO = 0.75  # of the excess: a fix leaves some of it
LEAST_STEP_RATIO = MATERIAL_STEP_RATIO / LEAST_RATIO  # of which the sure part is material
LEAST_OF_WORK_RATIO = 0.5  # work that is wanted: half as often wins half of it, elsewhere all

# Other rules know these kinds of time, whether they come often or rarely.
_OTHER_RULES_REPORT = (
    GapKind.COMPILE,
    GapKind.GC,
    GapKind.CHECKPOINT,
    GapKind.LOGGING,
    GapKind.PROFILER,
)

_SAYS_NOTHING = (GapKind.PYTHON, GapKind.UNRECORDED, GapKind.DISPATCH)  # without a place
_TOLD_HERE = tuple(
    k for k in GapKind if k not in (*_OTHER_RULES_REPORT, GapKind.DATA, GapKind.UNRECORDED)
)


def check(trace: Trace) -> Iterator[Found | Small]:
    """Causes of exceptional steps, most time first."""
    yield from (with_known_way(trace, one) for one in _causes(trace))


def _causes(trace: Trace) -> Iterator[Found | Small]:
    rare = tuple(rare_found(trace, _TOLD_HERE, fix=LESS_OFTEN))
    requests = [one for one in material(trace) if is_work_of_a_model(trace, one)]
    begin = [located(one) for one in requests]
    if rare and all(one.location in begin for one in rare):
        raise NotChecked(
            f"some steps take far longer, in {begin[0]}, where a model works and nothing is"
            " trained: the work that a request begins with; whether it is needed does not show",
            fits=True,
        )
    rare = tuple(one for one in rare if one.location not in begin)
    if rare:
        kept = kept_lock(trace)  # told with the thread that keeps it
        rare = tuple(one for one in rare if kept is None or not kept.is_awaited_in(one.location))
        yield from rare
        return
    yield from rare_and_small(trace, _TOLD_HERE)
    mean = mean_step(trace)
    if mean is None or mean.count < FEWEST_STEPS:
        raise _too_few(trace)
    elsewhere = (*_OTHER_RULES_REPORT, *((GapKind.DATA,) if loads(trace) is not None else ()))
    again = [c for c in mean.causes if not c.starting and c.kind not in elsewhere]
    if rare_causes(trace):  # the samples say what it was, and how often
        again = [c for c in again if location(trace, c) is not None or c.kind not in _SAYS_NOTHING]
    found = [cause for cause in again if _is_no_accident(cause, mean)]
    if len(timed_steps_ns(trace)):
        found = [cause for cause in found if not _while_recorded_alone(trace, mean, cause)]
        if computes_on_cpu(trace):
            found = [cause for cause in found if not _same_work_once(trace, cause)]
    unsure = [] if len(timed_steps_ns(trace)) else [c for c in found if _had_no_core(trace, c)]
    small = [c for c in found if _is_small(c, mean) and c not in unsure]
    unsure = [cause for cause in unsure if not _is_small(cause, mean)]
    found = [c for c in found if not _is_small(c, mean) and c not in unsure]
    yield from (Small(c.ns_per_step / mean.steady_ns, LEAST_STEP_RATIO) for c in small)
    yield from (_finding(trace, mean, cause) for cause in found)
    if unsure and not found:
        raise _may_have_had_no_core(unsure[0])
    more = unrecorded_excess_ns(trace)
    if more is not None and not found:
        raise NotChecked(
            f"the run's mean step is {duration(more)} longer than that of the recorded steps, and"
            " what makes the difference was not recorded",
            Record("more steps: pinchpoint run --steps 60 --stacks python train.py"),
        )


def _too_few(trace: Trace) -> NotChecked:
    """What few steps leave open: undecided, unless the run timed its steps and they agree."""
    count = len(steps(trace).durations_ns)
    if not count or len(timed_steps_ns(trace)):
        return NotChecked("with fewer than four complete steps no step is an exception")
    which = "one complete step does" if count == 1 else f"{count} complete steps do"
    return NotChecked(
        f"{which} not show what comes every few steps (a save, an evaluation, a slow batch)",
        fits=True,
    )


LEAST_RUN_RATIO = 0.05  # of a run that was not recorded: less is within what two runs differ by


def check_run(trace: Trace) -> Iterator[Found | Small]:
    """Far steps of a run whose steps were timed and not recorded."""
    from pinchpoint.diagnosis.evidence.run_places import account_of, in_the_run

    samples, total_ns = trace.run.samples if trace.run else None, account_of(trace).total_ns
    if samples is None or not samples.count:
        raise NotChecked("no steps of the run were told from each other: pinchpoint.step() does")
    for cause in rare_causes(trace):
        ns = cause.ns_per_step * samples.count
        if not cause.recurs or cause.place.at is None:
            continue
        if ns < LEAST_RUN_RATIO * total_ns:
            yield Small(ns / total_ns, LEAST_RUN_RATIO, "the run")
        else:
            found = in_the_run(trace, found_of(trace, cause, LESS_OFTEN), ns)
            yield with_known_way(trace, found)


def _is_small(cause: ExceptionalCause, mean: MeanStep) -> bool:
    """Judged as recorded: recording may have cost an exception much of its time."""
    return cause.ns_per_step < LEAST_STEP_RATIO * mean.steady_ns


def _is_no_accident(cause: ExceptionalCause, mean: MeanStep) -> bool:
    excess = max(one.excess_ns for one in cause.steps)
    far = excess >= min(INCIDENT_NS, (IRREGULAR_RATIO - 1) * mean.typical_ns)
    return len(cause.steps) > 1 or far


def _same_work_once(trace: Trace, cause: ExceptionalCause) -> bool:
    """Whether it is one step alone, in which no more operators ran than in a usual one."""
    if cause.kind not in (None, GapKind.DISPATCH) or len(cause.steps) > 1:
        return False
    return _same_work(trace, cause)


def _same_work(trace: Trace, cause: ExceptionalCause) -> bool:
    host, found = trace.host_ops, steps(trace)
    if host is None:
        return False
    at = np.sort(host["start_ns"][host["kind"] == HostKind.OPERATOR])
    begun = np.searchsorted(at, found.host_start_ns)
    ran = np.searchsorted(at, found.host_end_ns) - begun
    far = [one.step for one in cause.steps]
    return bool((ran[far] <= SAME_WORK_RATIO * np.median(ran)).all())


def _larger_tensors(trace: Trace, cause: ExceptionalCause) -> bool:
    """Whether operators got more elements in these steps than in a usual one, by their shapes."""
    host, found = trace.host_ops, steps(trace)
    if host is None:
        return False
    order = np.argsort(host["start_ns"], kind="stable")
    until = np.concatenate([[0], np.cumsum(np.maximum(first_elements(trace)[order], 0))])
    at = host["start_ns"][order]
    begun = until[np.searchsorted(at, found.host_start_ns)]
    got = until[np.searchsorted(at, found.host_end_ns)] - begun
    far = [one.step for one in cause.steps]
    return bool((got[far] > SAME_WORK_RATIO * np.median(got)).any())


def _had_no_core(trace: Trace, cause: ExceptionalCause) -> bool:
    """Whether nothing tells steps of a program on a CPU from steps that waited for a core.

    No more operators ran, on no larger tensors; what took longer has no place, and it does not come
    at a fixed distance.
    """
    if not computes_on_cpu(trace) or not _same_work(trace, cause):
        return False
    if _larger_tensors(trace, cause):
        return False
    if cause.kind in (None, GapKind.DISPATCH):
        return len(cause.steps) == 1
    return cause.kind in _SAYS_NOTHING and cause.every is None and location(trace, cause) is None


def _may_have_had_no_core(cause: ExceptionalCause) -> NotChecked:
    count, most = len(cause.steps), max(one.excess_ns for one in cause.steps)
    steps_took = "one step took" if count == 1 else f"{count} steps took up to"
    return NotChecked(
        f"{steps_took} {duration(most)} more than usual with no more operators, as where other"
        " programs have the cores",
        Record("a run whose steps are timed, and looked at: pinchpoint run python train.py"),
        fits=True,
    )


# Of what the recorded steps show: where it comes half as often in the steps that were timed without
# the profiler, it is what recording does to a host that has to keep up.
AS_OFTEN_RATIO = 0.5


def _while_recorded_alone(trace: Trace, mean: MeanStep, cause: ExceptionalCause) -> bool:
    """Whether the host did the usual work more slowly, and hardly does so without the profiler."""
    if cause.kind not in _SAYS_NOTHING or not _same_work(trace, cause):
        return False
    timed = timed_steps_ns(trace)
    least_ns = min(one.excess_ns for one in cause.steps) * AS_OFTEN_RATIO
    as_far = float(np.mean(timed >= np.median(timed) + least_ns))
    return as_far < AS_OFTEN_RATIO * len(cause.steps) / mean.count


def _finding(trace: Trace, mean: MeanStep, cause: ExceptionalCause) -> Found:
    idle = cause.kind is not None
    start, end = (
        np.concatenate([getattr(s, edge) for s in cause.steps]) for edge in ("start_ns", "end_ns")
    )
    fix, record = advice(trace, cause)
    most_ns = at_the_rate_of_the_run(trace, cause.ns_per_step)
    least = LEAST_RATIO if idle else LEAST_OF_WORK_RATIO
    return Found(
        summary=sentence(trace, mean, cause),
        evidence=evidence(trace, mean, cause),
        cost_ns_per_step=cause.ns_per_step,
        changes=(RemoveHostTime(start, end),) if idle else (),
        saving_ns_per_step=(round(least * most_ns), most_ns),
        location=location(trace, cause),
        fix=fix,
        confirm=record or 'pinchpoint bench ab -- "python train.py" "python train_fixed.py"',
        confidence="medium" if len(cause.steps) > 1 else "low",
    )
