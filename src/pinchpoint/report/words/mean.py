"""The sentences about the mean step, the kinds of steps and the exceptional ones."""

from collections.abc import Iterator

from pinchpoint.diagnosis.rule import MATERIAL_STEP_RATIO
from pinchpoint.report.documents.report import ExceptionalStepInfo, Report, StepKindInfo
from pinchpoint.report.quantity import duration, in_unit, time_unit
from pinchpoint.report.words.run import outside_sentence, steps_of_run
from pinchpoint.report.words.steps import base_ns, counts_the_mean

_COUNTED_RATIO = 0.1  # host time differs by so much between two runs of one program
_MOST_CAUSES = 3  # of exceptional steps, in one sentence


def mean_sentences(report: Report) -> Iterator[str]:
    """What a step costs on average, where the typical step does not tell it."""
    if kinds := _kinds(report):
        yield kinds
        yield from (_parts_of_kind(report, kind) for kind in report.steps.kinds)
    said = (of(report) for of in (_mean, _growing, _run, _counted, outside_sentence))
    yield from filter(None, said)
    if report.run is not None:
        yield from (sentence[:1].upper() + sentence[1:] for sentence in report.run.disturbed)
        if report.run.disturbed and report.device is None and _predicts(report):
            yield _BESIDE_OTHERS
    if taken := _taken(report):
        yield taken
    if report.run is not None and report.run.alone and (timed := steps_of_run(report.run)):
        yield timed


# Of blind programs a step took 129 ms beside a dozen processes, and 15 to 31 beside a few.
_BESIDE_OTHERS = (
    "Steps before and after a change are told as beside these others; alone both are shorter, and"
    " what carries over is their ratio"
)


def _predicts(report: Report) -> bool:
    return any(finding.predicted_step_ns is not None for finding in report.findings)


def _kinds(report: Report) -> str | None:
    kinds = report.steps.kinds
    if len(kinds) < 2:
        return None
    said = [
        f"{duration(kind.mean_ns or kind.median_ns)} × {kind.count}"
        + (f" ({kind.label})" if kind.label else "")
        for kind in kinds
    ]
    return f"{_NUMBERS.get(len(kinds), str(len(kinds)))} kinds of steps: {', '.join(said)}"


def _parts_of_kind(report: Report, kind: StepKindInfo) -> str:
    """``54.0 ms (with a backward pass), as recorded: matrix products 41.2, the rest 12.8``."""
    whole_ns = sum(part.ns_per_step for part in kind.breakdown)
    unit = time_unit(whole_ns)
    large = [p for p in kind.breakdown if p.ns_per_step >= SMALL_PART_RATIO * whole_ns]
    said = [f"{p.label} {in_unit(p.ns_per_step, unit)}" for p in large[:_MOST_PARTS]]
    rest_ns = whole_ns - sum(p.ns_per_step for p in large[:_MOST_PARTS])
    said += [f"the rest {in_unit(rest_ns, unit)}"] if rest_ns >= REST_RATIO * whole_ns else []
    which = f" ({kind.label})" if kind.label else ""
    return f"{duration(whole_ns)}{which}, as recorded: {', '.join(said)}{_causes_in(report, kind)}"


def _causes_in(report: Report, kind: StepKindInfo) -> str:
    """``. Causes there: unfused-optimizer (42 % less), pageable-h2d (5 %)``."""
    if kind.bound_by is None:
        return ""
    said = [
        f"{one.id} ({100 * (1 - one.predicted_step_ns / kind.base_ns):.0f} % less)"
        if one.predicted_step_ns is not None and kind.base_ns and not one.given
        else one.id
        for one in kind.findings[:_MOST_CAUSES]
    ]
    if not said:
        # on a CPU alone nothing waits for the host
        idles = kind.bound_by != "host" or any(p.part.startswith("idle-") for p in kind.breakdown)
        of_kinds = {one.id for each in report.steps.kinds for one in each.findings}
        of_all = any(finding.id not in of_kinds for finding in report.findings)
        alone = " by these steps alone" if of_all else ""
        return f". No cause is found there{alone}{_BOUND.get(kind.bound_by, '') if idles else ''}"
    more = len(kind.findings) - len(said)
    return f". Causes there: {', '.join(said)}{f' and {more} more' if more else ''}"


_BOUND = {
    "device": ": the device is at work",
    "host": ": the device waits for the host",
    "input": ": they wait for data",
    "communication": ": they wait for other devices",
    "copies": ": they wait for copies",
}
_MOST_PARTS, SMALL_PART_RATIO = 4, 0.03  # named, of a kind of steps; less is not material
REST_RATIO = 0.01  # less is within what three digits show
_NUMBERS = {2: "Two", 3: "Three", 4: "Four"}


def _mean(report: Report) -> str | None:
    """``Steps of up to 59.3 ms, one every 11, add 1.05 ms a step to the mean (idle)``."""
    mean_ns, count = report.steps.mean_ns, len(report.steps.duration_ns)
    if mean_ns is None or not count:
        return None
    causes = _by_cause(report)
    added = sum(one.excess_ns for cause in causes for one in cause) / count
    if not causes or added < MATERIAL_STEP_RATIO * mean_ns:
        return None
    if more := _more_often_recorded(report, causes[0], added):
        return more
    unit = time_unit(mean_ns)
    said = [_adds(cause, count, unit, with_unit=True) for cause in causes[:_MOST_CAUSES]]
    rest = sum(one.excess_ns for cause in causes[_MOST_CAUSES:] for one in cause)
    said += [f"others add {in_unit(rest / count, unit)} {unit} a step"] if rest else []
    sentence = f"{_typical(report)}{'; '.join(said)}"
    return f"{sentence[:1].upper()}{sentence[1:]}"


def _more_often_recorded(
    report: Report, first: list[ExceptionalStepInfo], added_ns: float
) -> str | None:
    """Where the run has such steps more seldom than the few that were recorded: what they add to
    the mean is not said by these. None where it is."""
    steps, base = report.steps, base_ns(report)
    usual, count = steps.unprofiled_ns_predicted, len(report.steps.duration_ns)
    if usual is None or not base or not counts_the_mean(report) or added_ns <= base - usual:
        return None
    longest = max(first, key=lambda one: one.duration_ns)
    many = f"{len(first)} of" if len(first) > 1 else "one of"
    return (
        f"A typical step takes {duration(usual)} without the profiler; among the {count} complete"
        f" recorded ones {'are' if len(first) > 1 else 'is'} {many} {duration(longest.duration_ns)}"
        f" ({longest.label.removeprefix('idle: ')}), which is more often than in the run"
    )


def _typical(report: Report) -> str:
    """The typical step, where the headline is the mean: ``a typical step takes 104 ms; ``."""
    steps = report.steps
    known = steps.unprofiled_ns_predicted
    if not counts_the_mean(report) or steps.typical_ns is None:
        return ""
    clock = "as recorded" if known is None else "without the profiler"
    return f"a typical step takes {duration(known or steps.typical_ns)} {clock}; "


def _by_cause(report: Report) -> list[list[ExceptionalStepInfo]]:
    alike: dict[tuple[object, ...], list[ExceptionalStepInfo]] = {}
    for one in report.steps.exceptional:
        at = one.location
        where = (at.file, at.line, at.function) if at else ()
        alike.setdefault((one.starting, one.part, where), []).append(one)
    return sorted(alike.values(), key=lambda same: -sum(one.excess_ns for one in same))


def _adds(
    same: list[ExceptionalStepInfo], count: int, unit: str, *, with_unit: bool = False
) -> str:
    """What exceptional steps with one cause add to the mean."""
    longest = max(same, key=lambda one: one.duration_ns)
    spelt = f" {unit}" if with_unit else ""
    adds = f"{in_unit(sum(one.excess_ns for one in same) / count, unit)}{spelt} a step"
    why = longest.label.removeprefix("idle: ")
    many = len(same)
    if longest.starting:
        first = "the first complete step adds" if many == 1 else f"the first {many} steps add"
        return f"{first} {adds} while program or recording settles ({why})"
    if many == 1:
        return f"one step of {duration(longest.duration_ns)} adds {adds} ({why})"
    often = f"one every {longest.every}" if (longest.every or 0) > 1 else f"{many} of {count}"
    return f"steps of up to {duration(longest.duration_ns)}, {often}, add {adds} ({why})"


def _growing(report: Report) -> str | None:
    """``The run's steps grow, from 36.4 ms (step 7 on) to 104 ms (step 93 on); those …``"""
    found = report.steps.growing
    if found is None:
        return None
    said = (
        f"The run's steps grow, from {duration(found.first_ns)} (step {found.first:,} on) to"
        f" {duration(found.last_ns)} (step {found.last:,} on)"
    )
    if found.recorded_before <= found.recorded_after + 1:
        return said
    after, before = found.recorded_after, found.recorded_before
    return f"{said}; those recorded lie between steps {after:,} and {before:,}"


def _run(report: Report) -> str | None:
    """Where the run was slower than what was recorded of it."""
    run_ns, more_ns = report.steps.run_mean_ns, report.steps.run_excess_ns
    if run_ns is None or more_ns is None:
        return None
    return (
        f"The run's mean is {duration(run_ns)}, the recorded steps' {duration(run_ns - more_ns)},"
        " without the profiler: what makes the difference was not recorded. More steps would"
        " show it (pinchpoint run --steps 60 --stacks)"
    )


def _taken(report: Report) -> str | None:
    """``At least 33 steps of the run had no core, which others had: not counted here``."""
    count, ns, base = report.steps.taken_steps, report.steps.taken_ns_per_step, base_ns(report)
    if not count or not ns or not base or ns < MATERIAL_STEP_RATIO * base:
        return None
    return (
        f"At least {count} steps of the run had no core, because others had them, which adds"
        f" {duration(ns)} a step to its mean: left out here"
    )


def _counted(report: Report) -> str | None:
    """What the number of steps says of the mean, where the few that were timed say otherwise."""
    counted_ns, base = report.steps.run_counted_ns, base_ns(report)
    if counted_ns is None or not base or abs(counted_ns / base - 1) < _COUNTED_RATIO:
        return None
    return (
        f"By their number in the whole run its steps took at most {duration(counted_ns)} each,"
        " pauses included: only the first ones were timed"
    )


def unexplained_exceptions(report: Report) -> str | None:
    """What exceptional steps add to the mean without a finding; None if that is not material."""
    mean_ns, count = report.steps.mean_ns, len(report.steps.duration_ns)
    again = [cause for cause in _by_cause(report) if not cause[0].starting]
    if mean_ns is None or not again:
        return None
    excess = sum(one.excess_ns for one in again[0])
    if excess / count < MATERIAL_STEP_RATIO * mean_ns:
        return None
    what = _adds(again[0], count, time_unit(mean_ns), with_unit=True)
    return f"{what}. Whether that comes again, more steps would show"
