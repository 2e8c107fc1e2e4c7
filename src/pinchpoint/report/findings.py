"""What the rules said, as parts of the document."""

from collections.abc import Iterable
from typing import TypedDict

from pinchpoint.analysis.replay import DropSyncs, RemoveHostTime, ScaleHostSpans
from pinchpoint.diagnosis.engine import Diagnosis, Ranked
from pinchpoint.diagnosis.rule import Evidence, Location, Outcome
from pinchpoint.errors import UsageError
from pinchpoint.report.document import (
    EvidenceItem,
    FindingItem,
    LocationInfo,
    NotCheckedItem,
    Report,
    RowsItem,
)
from pinchpoint.report.timeline.occurrences import occurrences

MOST_HIDES_RATIO = 0.6  # a gain below this part of its cost wants a reason
MOST_ROWS = 20  # named one by one in the document; the timeline of the report has all of them


class Answers(TypedDict):
    """The fields of the document that rules fill."""

    findings: tuple[FindingItem, ...]
    together_ns: int | None
    together_range_ns: tuple[int, int] | None
    not_checked: tuple[NotCheckedItem, ...]
    clear: tuple[str, ...]
    crashed: tuple[NotCheckedItem, ...]


def answers(diagnosis: Diagnosis) -> Answers:
    """Findings, in the order in which to fix them, and every other answer: no rule is silent.

    A cause that was found and is not worth a finding counts as clear.
    """
    findings = tuple(finding_item(ranked) for ranked in diagnosis.found)
    shown = {finding.id for finding in findings}
    looked = [o.id for o in diagnosis.outcomes if o.answer in ("clear", "found")]
    together = diagnosis.together
    return Answers(
        findings=findings,
        together_ns=together.step_ns if together else None,
        together_range_ns=together.range_ns if together else None,
        not_checked=tuple(_unanswered(diagnosis.outcomes, "not checked")),
        clear=tuple(id_ for id_ in looked if id_ not in shown),
        crashed=tuple(_unanswered(diagnosis.outcomes, "crashed")),
    )


def _unanswered(outcomes: Iterable[Outcome], answer: str) -> Iterable[NotCheckedItem]:
    return (
        NotCheckedItem(id=o.id, why=o.why, record=o.record) for o in outcomes if o.answer == answer
    )


def chosen(report: Report, finding: str) -> FindingItem:
    """The finding by id or number; UsageError that says why there is none."""
    for number, item in enumerate(report.findings, 1):
        if finding in (item.id, str(number)):
            return item
    for unanswered in (*report.not_checked, *report.crashed):
        if unanswered.id == finding:
            raise UsageError(f"{finding} was not checked: {unanswered.why}", hint=unanswered.record)
    if finding in report.clear:
        raise UsageError(f"{finding} was looked for and not found", hint="nothing to do")
    ids = ", ".join(item.id for item in report.findings)
    raise UsageError(
        f"no finding {finding!r} in this recording",
        hint=f"findings: {ids or 'none in this recording'}",
    )


def finding_item(ranked: Ranked) -> FindingItem:
    """One finding as the document has it."""
    finding, predicted = ranked.finding, ranked.predicted
    return FindingItem(
        id=ranked.id,
        summary=finding.summary,
        evidence=tuple(_evidence(fact) for fact in finding.evidence),
        cost_ns_per_step=finding.cost_ns_per_step,
        location=_location(finding.location),
        predicted_step_ns=predicted.step_ns if predicted else None,
        predicted_range_ns=predicted.range_ns if predicted else None,
        given=ranked.given,
        given_step_ns=predicted.step_ns + ranked.saving_ns if predicted and ranked.given else None,
        hidden_ns=_hidden_ns(ranked),
        fix=finding.fix,
        hint=finding.hint,
        confirm=finding.confirm,
        consequence=finding.consequence,
        confidence=finding.confidence,
        rows=tuple(
            RowsItem(table=table, rows=tuple(rows[:MOST_ROWS].tolist()), count=len(rows))
            for table, rows in occurrences(finding).rows.items()
        ),
    )


def _hidden_ns(ranked: Ranked) -> int | None:
    """Host time that the cause takes and that its fix does not win, where that is much of it.

    The device works through it, or the host would wait for the device in its place.
    """
    finding, saving = ranked.finding, ranked.saving_ns
    of_the_host = (DropSyncs, RemoveHostTime, ScaleHostSpans)
    if ranked.given or not all(isinstance(change, of_the_host) for change in finding.changes):
        return None
    cost = finding.cost_ns_per_step or 0
    return cost - saving if finding.changes and 0 < saving < MOST_HIDES_RATIO * cost else None


def _evidence(fact: Evidence) -> EvidenceItem:
    return EvidenceItem(
        what=fact.what, value=fact.value, unit=fact.unit, at_ns=fact.at_ns, name=fact.name
    )


def _location(place: Location | None) -> LocationInfo | None:
    if place is None:
        return None
    return LocationInfo(
        file=place.file,
        line=place.line,
        function=place.function,
        module=place.module,
        operator=place.operator,
    )
