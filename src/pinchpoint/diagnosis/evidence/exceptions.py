"""What findings about exceptional steps say alike: how often, how long, where, what to do."""

import numpy as np

from pinchpoint.analysis.host.frames import Owner, owners
from pinchpoint.analysis.mean.mean_step import ExceptionalCause, MeanStep, mean_differs, mean_step
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.analysis.steps.in_steps import window_of
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis.evidence.device_work import location_of
from pinchpoint.diagnosis.evidence.rare import material
from pinchpoint.diagnosis.evidence.rare import sentence as sentence_of_rare
from pinchpoint.diagnosis.finding import Evidence, Location
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.durations import duration

_STACKS = "record it again with Python stacks: with_stack=True"

_ADVICE = {
    GapKind.SYNC: "Wait for the device less often, or a step late",
    GapKind.AFTER_SYNC: "Wait for the device less often, or a step late",
    GapKind.MALLOC: "Keep device memory between steps: same shapes, and no emptying of the cache",
    GapKind.CODE_LOAD: "Run every kind of step once before the loop, so that its code is loaded",
    GapKind.WAIT: "Do not wait for the other thread or process on the thread that launches",
    GapKind.HOST_COLLECTIVE: "Let processes communicate less often, or beside the device's work",
}
LESS_OFTEN = "Do this less often, in a thread of its own, or before the loop"


def how_often(mean: MeanStep, cause: ExceptionalCause) -> str:
    """``once in 27 steps``, ``every 5 steps``, ``in 4 of 27 steps``."""
    times = len(cause.steps)
    if times == 1:
        return f"once in {mean.count} steps"
    regular = cause.every is not None and cause.every > 1
    return f"every {cause.every} steps" if regular else f"in {times} of {mean.count} steps"


def takes_more(mean: MeanStep, cause: ExceptionalCause) -> str:
    """``every 5 steps one takes up to 100 ms more than usual``."""
    longest = duration(max(one.excess_ns for one in cause.steps))
    often, one = how_often(mean, cause), "a step" if len(cause.steps) == 1 else "one"
    if often.startswith("in "):
        return f"{often.removeprefix('in ')} take up to {longest} more than usual"
    limit = "" if len(cause.steps) == 1 else "up to "
    return f"{often} {one} takes {limit}{longest} more than usual"


def what_it_is(cause: ExceptionalCause) -> str:
    """What fills the excess, in words."""
    if cause.kind is not None:
        return cause.part.label.removeprefix("idle: ")
    if any(one.forward_only for one in cause.steps):
        return "forward passes without a backward pass, as in an evaluation"
    if not any(one.more_launches for one in cause.steps):
        return f"device work that usually takes less, mostly {cause.part.label}"
    return f"more device work than usual, mostly {cause.part.label}"


def on_the_mean(trace: Trace) -> str:
    """For the verdict: that the mean step is longer than the typical one, and why."""
    if rare := material(trace):
        return f" But that is the typical step of the run. {sentence_of_rare(trace, rare[0])}."
    mean = mean_step(trace)
    again = [] if mean is None else [cause for cause in mean.causes if not cause.starting]
    if mean is None or not again or not mean_differs(trace):
        return ""
    return (
        f" But that is the typical step, and the mean one takes {duration(mean.steady_ns)} in the"
        f" trace: {takes_more(mean, again[0])} ({what_it_is(again[0])})."
    )


# Of the mean step, in one cause that comes again: what bounds the typical step is then the lesser.
MOST_OF_MEAN_RATIO = 0.5


def most_of_the_mean(trace: Trace) -> str:
    """For the verdict: the far steps that hold most of the mean step; empty where none do."""
    rare, base_ns = material(trace), step_base_ns(trace)
    if not rare or not base_ns or rare[0].ns_per_step < MOST_OF_MEAN_RATIO * base_ns:
        return ""
    share = 100 * rare[0].ns_per_step / base_ns
    return f"{sentence_of_rare(trace, rare[0])}, {share:.0f} % of the mean step."


# Of the excess: a function that only these steps run and that takes so much of it is what they do.
MOSTLY_RATIO = 0.75


def location(trace: Trace, cause: ExceptionalCause) -> Location | None:
    """The function that only these steps run, if most of the excess is in it; or where most of the
    part that grew is; None where the recording does not say."""
    alone = _only_there(trace, cause)
    if alone is not None:
        return location_of(trace, alone)
    at = cause.place
    found = Location(at.file, at.line, at.function, at.module, at.operator)
    return None if found == Location() else found


def _only_there(trace: Trace, cause: ExceptionalCause) -> int | None:
    """The longest call of the innermost function that no other step runs and most of the excess is
    in; a row of ``host_ops``."""
    host, found = trace.host_ops, steps(trace)
    if host is None:
        return None
    mine = np.flatnonzero((owners(trace) == Owner.USER) & (host["thread"] == found.thread))
    end_ns = np.append(found.host_start_ns[1:], found.end_ns[-1:])
    step = window_of(host["start_ns"][mine], found.host_start_ns, end_ns)
    mine, step = mine[step < len(end_ns)], step[step < len(end_ns)]
    these = np.isin(step, [one.step for one in cause.steps])
    here = mine[these & ~np.isin(host["name"][mine], host["name"][mine[~these]])]
    if not len(here):
        return None
    took = np.bincount(host["name"][here], host["duration_ns"][here])
    excess_ns = sum(one.excess_ns for one in cause.steps)
    enough = np.flatnonzero(took >= MOSTLY_RATIO * excess_ns)
    if not len(enough):
        return None
    calls = here[host["name"][here] == enough[took[enough].argmin()]]
    return int(calls[host["duration_ns"][calls].argmax()])


def sentence(trace: Trace, mean: MeanStep, cause: ExceptionalCause) -> str:
    """One sentence for the headline of a finding."""
    longest = max(cause.steps, key=lambda one: one.excess_ns)
    place = location(trace, cause)
    where = f" in {place}" if place is not None else ""
    if not where and longest.name:
        where = f" ({longest.name})"
    said = takes_more(mean, cause)
    return (
        f"{said[:1].upper()}{said[1:]}: {what_it_is(cause)}{where},"
        f" {duration(cause.ns_per_step)} of the mean recorded step"
    )


def evidence(trace: Trace, mean: MeanStep, cause: ExceptionalCause) -> tuple[Evidence, ...]:
    """The mean with and without it, and the longest of the steps."""
    number = steps(trace).number
    longest = max(cause.steps, key=lambda one: one.part_ns)
    which = ", ".join(str(int(number[one.step])) for one in cause.steps[:10])
    return (
        Evidence("mean step", mean.mean_ns, "ns"),
        Evidence("mean step without it", mean.without_ns(cause), "ns"),
        Evidence("exceptional steps", len(cause.steps), f"of {mean.count}"),
        Evidence("their numbers", which, ""),
        Evidence(
            f"most of {cause.part.label.removeprefix('idle: ')} beyond usual, in one step",
            longest.part_ns,
            "ns",
            longest.at_ns,
            longest.name,
        ),
    )


def advice(trace: Trace, cause: ExceptionalCause) -> tuple[str, str]:
    """What to do; and what to record where the recording does not show the reason, else nothing."""
    if cause.kind is None:
        if any(one.forward_only for one in cause.steps):
            return "Evaluate less often, on fewer batches, or in a process of its own", ""
        if not any(one.more_launches for one in cause.steps):
            return "Find out what slowed it: other shapes, the clocks, a process beside it", ""
        return "Do this less often, or spread it over the steps", ""
    nowhere = location(trace, cause) is None and cause.kind in (GapKind.PYTHON, GapKind.UNRECORDED)
    if nowhere and not _has_stacks(trace):
        return f"What the host did then was not recorded: {_STACKS}", _RECORD
    if cause.kind == GapKind.UNRECORDED:
        return "Find out what held the thread up: another process on its core, a page fault", ""
    return _ADVICE.get(cause.kind, LESS_OFTEN), ""


_RECORD = "pinchpoint run --stacks python train.py"


def _has_stacks(trace: Trace) -> bool:
    return trace.host_ops is not None and bool((trace.host_ops["kind"] == HostKind.PYTHON).any())
