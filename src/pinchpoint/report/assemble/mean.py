"""The mean step, the kinds of steps and the exceptional ones, as fields of the document."""

from typing import Any

import numpy as np
from msgspec.structs import replace

from pinchpoint.analysis.host.source_lines import Place
from pinchpoint.analysis.mean.exceptional_steps import ExceptionalStep
from pinchpoint.analysis.mean.mean_step import (
    ExceptionalCause,
    counted_mean_ns,
    mean_differs,
    mean_range_ns,
    mean_step,
    mean_without_profiler_ns,
    timed_steps_ns,
    unrecorded_excess_ns,
)
from pinchpoint.analysis.mean.more_calls import growing_run
from pinchpoint.analysis.mean.rare_steps import taken_by_others
from pinchpoint.analysis.mean.step_kinds import StepKind, step_kinds
from pinchpoint.analysis.replay.predict import corrected_step_ns
from pinchpoint.analysis.replay.recording_cost import why_uncalibrated
from pinchpoint.analysis.statistics import rounded_mean, share_out
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.accounting import breakdown
from pinchpoint.diagnosis.commands import Program
from pinchpoint.diagnosis.finding import Location
from pinchpoint.diagnosis.kinds import diagnosed_kinds
from pinchpoint.report.assemble.findings import NOT_KNOWN, finding_item
from pinchpoint.report.documents.report import (
    ExceptionalStepInfo,
    GrowingInfo,
    PartOfKind,
    StepKindInfo,
    StepsInfo,
)
from pinchpoint.trace import Trace


def mean_fields(trace: Trace) -> dict[str, Any]:
    """Fields of ``StepsInfo``; none where no step is complete."""
    mean, timed = mean_step(trace), timed_steps_ns(trace)
    if mean is None:
        return {}
    taken = taken_by_others(trace)
    told = [(cause, one) for cause in mean.causes for one in cause.steps]
    return {
        "mean_ns": mean.mean_ns,
        "kinds": _kinds(trace),
        "exceptional": tuple(
            _exceptional(trace, cause, one)
            for cause, one in sorted(told, key=lambda pair: pair[1].step)
        ),
        "base_ns": _base_ns(trace, mean.steady_ns),
        "base_range_ns": mean_range_ns(trace) if _corrected(trace) else None,
        "run_mean_ns": round(float(np.mean(timed))) if len(timed) else None,
        "run_excess_ns": unrecorded_excess_ns(trace),
        "taken_steps": sum(len(cause.steps) for cause in taken) or None,
        "taken_ns_per_step": sum(cause.ns_per_step for cause in taken) or None,
        "run_counted_ns": counted_mean_ns(trace),
        "growing": _growing(trace),
    }


def _growing(trace: Trace) -> GrowingInfo | None:
    found = growing_run(trace)
    if found is None:
        return None
    return GrowingInfo(
        first=found.first,
        first_ns=found.first_ns,
        last=found.last,
        last_ns=found.last_ns,
        recorded_after=found.recorded_after,
        recorded_before=found.recorded_before,
    )


def _base_ns(trace: Trace, steady_ns: int) -> int | None:
    if _corrected(trace):
        return mean_without_profiler_ns(trace)
    return steady_ns if mean_differs(trace) else None


def _corrected(trace: Trace) -> bool:
    known = len(timed_steps_ns(trace)) > 0 or why_uncalibrated(trace) is None
    return known and corrected_step_ns(trace) is not None


def _kinds(trace: Trace) -> tuple[StepKindInfo, ...]:
    whole, several = max(int(steps(trace).durations_ns.sum()), 1), step_kinds(trace).kinds
    return tuple(
        StepKindInfo(
            label=kind.label,
            count=len(kind.steps),
            median_ns=kind.median_ns,
            time_ratio=round(kind.total_ns / whole, 4),
            mean_ns=rounded_mean(kind.total_ns, len(kind.steps)),
            breakdown=_parts_of(trace, kind) if len(several) > 1 else (),
        )
        for kind in several
    )


def causes_of_kinds(trace: Trace, said: StepsInfo, program: Program = NOT_KNOWN) -> StepsInfo:
    """The same with what bounds each kind of steps, and the causes in it."""
    found = diagnosed_kinds(trace)
    if not found:
        return said
    kinds = tuple(
        replace(
            kind,
            bound_by=of.bound_by.value,
            base_ns=of.base_ns,
            findings=tuple(finding_item(ranked, program) for ranked in of.diagnosis.found),
        )
        for kind, of in zip(said.kinds, found, strict=True)
    )
    return replace(said, kinds=kinds)


def _parts_of(trace: Trace, kind: StepKind) -> tuple[PartOfKind, ...]:
    """Where the usual steps of a kind go, as recorded."""
    found, count = breakdown(trace), len(kind.steps)
    sums = found.by_step[kind.steps].sum(axis=0)
    took = share_out(sums, count, rounded_mean(kind.total_ns, count)).tolist()
    parts = sorted(zip(took, found.parts, strict=True), key=lambda pair: -pair[0])
    return tuple(
        PartOfKind(part=part.id, label=part.label, ns_per_step=ns) for ns, part in parts if ns
    )


def _exceptional(
    trace: Trace, cause: ExceptionalCause, one: ExceptionalStep
) -> ExceptionalStepInfo:
    found = steps(trace)
    return ExceptionalStepInfo(
        step=int(found.number[one.step]),
        duration_ns=int(found.end_ns[one.step] - found.start_ns[one.step]),
        excess_ns=one.excess_ns,
        part=one.part.id,
        label=one.part.label,
        part_ns=one.part_ns,
        location=_location(one.place),
        name=one.name,
        at_ns=one.at_ns,
        every=cause.every,
        starting=one.starting,
    )


def _location(at: Place) -> Location | None:
    if at == Place():
        return None
    return Location(
        file=at.file, line=at.line, function=at.function, module=at.module, operator=at.operator
    )


def kind_of_steps(trace: Trace) -> tuple[int | None, ...]:
    """Of each complete step, the position of its kind; None: an exception."""
    found = steps(trace)
    rows = np.flatnonzero(found.complete)
    kind: list[int | None] = [None] * len(found.complete)
    for position, one in enumerate(step_kinds(trace).kinds):
        for row in one.steps.tolist():
            kind[row] = position
    return tuple(kind[row] for row in rows.tolist())
