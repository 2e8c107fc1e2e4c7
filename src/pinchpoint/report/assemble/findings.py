"""What the rules said, as parts of the document."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypedDict

from pinchpoint.analysis.replay import DropSyncs, RemoveHostTime, ScaleHostSpans
from pinchpoint.diagnosis.commands import Program, in_its_words, program_of, spelt
from pinchpoint.diagnosis.engine import Diagnosis, Ranked
from pinchpoint.diagnosis.finding import (
    Evidence,
    Finding,
    Location,
    NotShown,
    RowsItem,
    Unanswered,
    shared,
)
from pinchpoint.diagnosis.registry import ask, rules
from pinchpoint.diagnosis.rule import About, Outcome
from pinchpoint.errors import UsageError
from pinchpoint.frozen import dataclass
from pinchpoint.report.documents.report import Report
from pinchpoint.report.timeline.occurrences import occurrences
from pinchpoint.trace import Trace

if TYPE_CHECKING:
    from pinchpoint.analysis.memory.growth import Leak
    from pinchpoint.report.documents.memory import MemoryFinding


MOST_HIDES_RATIO = 0.6  # a gain below this part of its cost wants a reason
MOST_ROWS = 20  # named one by one in the document; the timeline of the report has all of them


NOT_KNOWN = Program()


class Answers(TypedDict):
    """The fields of the document that rules fill."""

    findings: tuple[Finding, ...]
    together_ns: int | None
    together_range_ns: tuple[int, int] | None
    not_checked: tuple[Unanswered, ...]
    not_shown: tuple[NotShown, ...]
    clear: tuple[str, ...]
    not_applicable: tuple[str, ...]
    crashed: tuple[Unanswered, ...]


def answers(diagnosis: Diagnosis, program: Program = NOT_KNOWN) -> Answers:
    """Findings, in the order in which to fix them, and every other answer: no rule is silent."""
    outcomes, together = diagnosis.outcomes, diagnosis.together
    return Answers(
        findings=tuple(finding_item(ranked, program) for ranked in diagnosis.found),
        together_ns=together.step_ns if together else None,
        together_range_ns=together.range_ns if together else None,
        not_checked=unanswered(outcomes, "not checked", program),
        not_shown=not_shown(outcomes),
        clear=tuple(o.id for o in outcomes if o.answer == "clear"),
        not_applicable=tuple(o.id for o in outcomes if o.answer == "not applicable"),
        crashed=unanswered(outcomes, "crashed"),
    )


def not_shown(outcomes: Iterable[Outcome]) -> tuple[NotShown, ...]:
    """The causes that were found and are no finding."""
    return tuple(
        NotShown(id=o.id, why=o.why, covered_by=o.covered_by, step_ratio=o.step_ratio)
        for o in outcomes
        if o.answer in ("smaller", "covered")
    )


def unanswered(
    outcomes: Iterable[Outcome], answer: str, program: Program = NOT_KNOWN
) -> tuple[Unanswered, ...]:
    """The rules that gave an answer without a finding, why, and what to record."""
    return tuple(
        Unanswered(id=o.id, why=o.why, record=spelt(o.record, program), needs=o.needs, fits=o.fits)
        for o in outcomes
        if o.answer == answer
    )


def chosen(report: Report, finding: str) -> Finding:
    """The finding by id or number; UsageError that says why there is none."""
    for number, item in enumerate(report.findings, 1):
        if finding in (item.id, str(number)):
            return item
    for silent in (*report.not_checked, *report.crashed):
        if silent.id == finding:
            raise UsageError(f"{finding} was not checked: {silent.why}", hint=silent.record)
    for dropped in report.not_shown:
        if dropped.id == finding:
            raise UsageError(f"{finding} was found, and is {dropped.why}", hint="nothing to do")
    if finding in report.clear:
        raise UsageError(f"{finding} was looked for and not found", hint="nothing to do")
    ids = ", ".join(item.id for item in report.findings)
    raise UsageError(
        f"no finding {finding!r} in this recording",
        hint=f"findings: {ids or 'none in this recording'}",
    )


def finding_item(ranked: Ranked, program: Program = NOT_KNOWN) -> Finding:
    """One finding as the document has it, with commands of the program that was recorded."""
    found, predicted = in_its_words(ranked.finding, program), ranked.predicted
    return found.shown(
        id=ranked.id,
        predicted_step_ns=predicted.step_ns if predicted else None,
        predicted_range_ns=predicted.range_ns if predicted else None,
        given=ranked.given,
        given_step_ns=predicted.step_ns + ranked.saving_ns if predicted and ranked.given else None,
        hidden_ns=_hidden_ns(ranked),
        rows=tuple(
            RowsItem(table=table, rows=tuple(rows[:MOST_ROWS].tolist()), count=len(rows))
            for table, rows in occurrences(found).rows.items()
        ),
    )


def _hidden_ns(ranked: Ranked) -> int | None:
    """Host time that the cause takes and that its fix does not win, where that is much of it.

    The device works through it, or the host would wait for the device in its place. Of what a fix
    only makes quicker the rest is not hidden.
    """
    finding, saving = ranked.finding, ranked.saving_ns
    of_the_host = (DropSyncs, RemoveHostTime, ScaleHostSpans)
    if ranked.given or not all(isinstance(change, of_the_host) for change in finding.changes):
        return None
    if any(isinstance(one, ScaleHostSpans) and one.factor > 0 for one in finding.changes):
        return None
    cost = finding.cost_ns_per_step or 0
    return cost - saving if finding.changes and 0 < saving < MOST_HIDES_RATIO * cost else None


# ------------------------------------------------------------------------------------------------
# The findings of the memory rules, ranked by bytes.


MAJOR_RATIO = 0.1  # of the peak: such a finding is of high severity


@dataclass(frozen=True)
class Said:
    """The answers of the memory rules."""

    findings: "tuple[MemoryFinding, ...]"
    not_checked: tuple[Unanswered, ...]
    not_shown: tuple[NotShown, ...]
    clear: tuple[str, ...]
    crashed: tuple[Unanswered, ...]


def findings(trace: Trace) -> Said:
    """Ask the memory rules. A failed request comes first, then what frees most bytes."""
    asked = [known for known in rules().values() if known.rule.about is About.MEMORY]
    program = program_of(trace)
    outcomes = [ask(known, trace) for known in asked]
    from pinchpoint.analysis.memory.history import recorded_histories

    histories = recorded_histories(trace)
    major = MAJOR_RATIO * max((h.replay.peak("requested").bytes for h in histories), default=0)
    from pinchpoint.report.documents.memory import MemoryFinding

    found = [
        MemoryFinding(
            **shared(in_its_words(f, program)) | {"id": o.id},
            severity="high" if (f.saving_bytes or 0) >= major else "medium",
        )
        for o in outcomes
        for f in o.findings
    ]
    from pinchpoint.analysis.memory.shortage import pressure

    failed = any(pressure(trace, h).failure is not None for h in histories)
    first = {k.id for k in asked if failed and k.rule.explains_full_memory}
    found.sort(key=lambda f: (f.id not in first, -(f.saving_bytes or 0)))
    small = _negligible(trace)
    said = {one.id for one in small}
    return Said(
        findings=(*found, *small),
        not_checked=unanswered(outcomes, "not checked"),
        not_shown=not_shown(outcomes),
        clear=tuple(o.id for o in outcomes if o.answer == "clear" and o.id not in said),
        crashed=unanswered(outcomes, "crashed"),
    )


def _negligible(trace: Trace) -> "list[MemoryFinding]":
    """Leaks too small to matter: said, so that nobody looks for them."""
    named_by = {known.rule.leak: id_ for id_, known in rules().items()}
    from pinchpoint.analysis.memory.growth import MATERIAL_BYTES_PER_STEP, growth
    from pinchpoint.analysis.memory.history import recorded_histories

    return [
        _small_leak(named_by[leak.kind], leak)
        for history in recorded_histories(trace)
        for leak in growth(history).leaks
        if leak.bytes_per_step < MATERIAL_BYTES_PER_STEP
    ]


def _small_leak(id_: str, leak: "Leak") -> "MemoryFinding":
    spot = leak.place
    from pinchpoint.analysis.memory.shortage import place, size
    from pinchpoint.report.documents.memory import MemoryFinding

    return MemoryFinding(
        id=id_,
        summary=(
            f"Each step leaves {size(leak.allocated_per_step)} behind, through {place(spot)}:"
            " negligible"
        ),
        evidence=(
            Evidence("kept per step", leak.bytes_per_step, "bytes"),
            Evidence("kept per step as allocated", leak.allocated_per_step, "bytes"),
        ),
        saving_bytes=leak.total_bytes,
        location=spot and Location(spot.file, spot.line or None, spot.function),
        fix="Nothing to do, unless a run has millions of steps",
        severity="negligible",
    )
