"""Several kinds of steps, each diagnosed by itself.

Micro-steps and those that end with the optimizer, training and evaluation, prefill and decode: what
makes one kind slow may be a small part of the mean, or no part of the typical step. So the rules
are asked about the steps of each kind alone. What they find there and not in the whole is added to
what is said about the mean step, with the gain that it has there.
"""

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from pinchpoint.analysis.mean.step_kinds import StepKind, each_kind_alone, step_kinds
from pinchpoint.analysis.mean.what_if import covered_ratio, saved_mean, step_base_ns
from pinchpoint.analysis.replay.binding import Binding, bound
from pinchpoint.analysis.statistics import rounded_mean
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis import engine
from pinchpoint.diagnosis.engine import Diagnosis, Ranked
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.registry import rules
from pinchpoint.diagnosis.rule import MATERIAL_STEP_RATIO, About, Outcome
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.durations import duration


@dataclass(frozen=True, eq=False)
class DiagnosedKind:
    """What the rules say about the steps of one kind; its ``diagnosis`` counts from ``base_ns``."""

    kind: StepKind
    ratio: float  # its share of all complete steps
    base_ns: int | None  # its step, that gains count from
    bound_by: Binding
    diagnosis: Diagnosis


@once_per_trace
def diagnosed_kinds(trace: Trace) -> tuple[DiagnosedKind, ...]:
    """Each kind by itself, in the order of ``step_kinds``; empty where there is only one."""
    count = len(steps(trace).durations_ns)
    return tuple(
        DiagnosedKind(
            kind=kind,
            ratio=len(kind.steps) / count,
            base_ns=step_base_ns(alone),
            bound_by=bound(alone).by,
            diagnosis=engine.diagnose(alone),
        )
        for kind, alone in zip(step_kinds(trace).kinds, each_kind_alone(trace), strict=False)
    )


@once_per_trace
def diagnose(trace: Trace) -> Diagnosis:
    """What the rules say about the mean step, and what they say about one kind of steps alone."""
    said = engine.diagnose(trace)
    known = {o.id for o in said.outcomes if o.answer in ("found", "covered")}
    added: list[Ranked] = []
    for cause in _causes(trace, known):
        kept = [change for r in (*said.found, *added) for change in r.finding.changes]
        told = 2 * covered_ratio(trace, kept, cause[0].finding.changes) >= 1
        one = _of_the_mean(trace, cause)
        if one is not None and not told and one.id not in known:
            added.append(one)
            known.add(one.id)
    if not added:
        return said
    found = sorted((*said.found, *added), key=lambda r: (len(r.given), -r.saving_ns, r.id))
    return replace(said, found=tuple(found), outcomes=tuple(_outcomes(said.outcomes, added)))


@dataclass(frozen=True, eq=False)
class _InKind:
    """A finding in the steps of one kind, and what it takes of the mean step."""

    of: DiagnosedKind
    id: str
    finding: Found
    saving_ns: tuple[int, int]


def _causes(trace: Trace, known: set[str]) -> list[list[_InKind]]:
    """What was found in some kinds alone, one list for each cause: the kind that it costs most
    first. The same rule at the same place is the same cause."""
    causes: dict[tuple[str, object], list[_InKind]] = {}
    for of in diagnosed_kinds(trace):
        for one in _timed(of):
            place = one.finding.location
            at = None if place is None else (place.file, place.function)
            if one.id not in known:
                causes.setdefault((one.id, at), []).append(one)
    for cause in causes.values():
        cause.sort(key=lambda one: -sum(one.saving_ns))
    return list(causes.values())


def _timed(of: DiagnosedKind) -> Iterator[_InKind]:
    """The kind's findings about time, with what each gives the mean step."""
    for one in of.diagnosis.found:
        timed = one.predicted is not None and rules()[one.id].rule.about is About.TIME
        if one.given or not timed or rules()[one.id].rule.residual:
            continue
        assert one.predicted is not None
        low, high = (
            round(of.ratio * (one.predicted.base_ns - end)) for end in one.predicted.range_ns[::-1]
        )
        yield _InKind(of, one.id, one.finding, (low, high))


def _of_the_mean(trace: Trace, cause: list[_InKind]) -> Ranked | None:
    """What a cause gives in all kinds that have it together, if that is material."""
    base_ns = step_base_ns(trace)
    if base_ns is None:
        return None
    share = _of_the_run(trace, base_ns)
    low, high = (round(share * sum(one.saving_ns[end] for one in cause)) for end in (0, 1))
    if low < MATERIAL_STEP_RATIO * base_ns:
        return None
    after = saved_mean(trace, (low, high), round(base_ns - high))
    if after is None:
        return None
    return Ranked(cause[0].id, _told_of(cause, (low, high)), after, after.saving_ns)


def _of_the_run(trace: Trace, base_ns: int) -> float:
    """What a gain in the recorded kinds of steps is of one in the step that gains count from: less
    where that is shorter, for then the long kind came more often while it was recorded."""
    recorded = diagnosed_kinds(trace)
    if any(one.base_ns is None for one in recorded):
        return 1.0
    together = sum(one.ratio for one in recorded)
    mean_ns = sum(one.ratio * (one.base_ns or 0) for one in recorded) / max(together, 1e-9)
    return min(base_ns / max(mean_ns, 1.0), 1.0)


def _told_of(cause: list[_InKind], saving_ns: tuple[int, int]) -> Found:
    """The finding as one about the mean step, that says which steps it is about."""
    first = cause[0].finding
    costs = [(one.of.ratio, one.finding.cost_ns_per_step) for one in cause]
    which = " and ".join(_steps_of(one.of.kind) for one in cause)
    said: Found = msgspec.structs.replace(
        first,
        summary=f"In the steps of {which}: {first.summary[:1].lower()}{first.summary[1:]}",
        cost_ns_per_step=round(sum(ratio * cost for ratio, cost in costs if cost is not None))
        if any(cost is not None for _, cost in costs)
        else None,
        saving_ns_per_step=saving_ns,
        changes=tuple(change for one in cause for change in one.finding.changes),
        confidence="medium" if first.confidence == "high" else first.confidence,
    )
    return said


def _steps_of(kind: StepKind) -> str:
    long = duration(rounded_mean(kind.total_ns, len(kind.steps)))
    return f"{long} {kind.label}" if kind.label else long


def _outcomes(outcomes: tuple[Outcome, ...], added: list[Ranked]) -> Iterator[Outcome]:
    """The answers, where a rule found only in one kind what it did not find in all steps."""
    new = {r.id: r for r in added}
    for one in outcomes:
        if one.id in new:
            yield Outcome(one.id, "found", (new[one.id].finding,))
        else:
            yield one
