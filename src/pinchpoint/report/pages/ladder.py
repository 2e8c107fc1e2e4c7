"""The ladder of fixes as a block: bars from today's step to the step after each change."""

from pinchpoint.report.blocks import Ladder, Rung
from pinchpoint.report.documents.ladder import RungInfo
from pinchpoint.report.documents.ranks import RanksReport
from pinchpoint.report.documents.report import Report
from pinchpoint.report.quantity import in_unit, span, time_unit
from pinchpoint.report.words.ladder import (
    MOST_RUNGS,
    clock_words,
    rung_label,
    takes,
    why_this_order,
)


def ladder_block(report: Report | RanksReport) -> Ladder | None:
    """The block; None where no gain in time is known."""
    ladder = report.fix_ladder
    if ladder is None or not ladder.base_ns:
        return None
    unit = time_unit(ladder.base_ns)
    findings = [rung for rung in ladder.rungs if rung.kind == "finding"][:MOST_RUNGS]
    others = [rung for rung in ladder.rungs if rung.kind != "finding"]
    numbers: dict[str, list[int]] = {}  # of the findings; rungs of one cause are in their order
    own: dict[str, list[int]] = {}  # of those that have a rung
    for number, finding in enumerate(report.findings, 1):
        numbers.setdefault(finding.id, []).append(number)
        if finding.predicted_step_ns is not None:
            own.setdefault(finding.id, []).append(number)
    next_of = {id_: iter(of) for id_, of in own.items()}
    today = Rung("today", in_unit(ladder.base_ns, unit), 1.0, 1.0, 1.0, role="today")
    return Ladder(
        title=f"The step after each change, {clock_words(report)}",
        unit=unit,
        rungs=(
            today,
            *(
                _rung(
                    rung, ladder.base_ns, unit, numbers, next(next_of.get(rung.id, iter(())), None)
                )
                for rung in findings
            ),
            *(_rung(rung, ladder.base_ns, unit, numbers, None) for rung in others),
        ),
        note=why_this_order(ladder) or "",
    )


def _rung(
    rung: RungInfo, base_ns: int, unit: str, numbers: dict[str, list[int]], number: int | None
) -> Rung:
    low, high = rung.range_ns
    first = [str(numbers[id_][0]) for id_ in rung.after if id_ in numbers]
    after = f", after {' and '.join(first)}" if first else ""
    return Rung(
        label=rung_label(rung),
        figure=in_unit(rung.step_ns, unit),
        ratio=min(rung.step_ns / base_ns, 1.0),
        low=min(low / base_ns, 1.0),
        high=min(high / base_ns, 1.0),
        between=span(low, high, unit),
        takes=takes(rung) + after,
        role=rung.kind,  # type: ignore[arg-type]
        id=rung.id if rung.kind == "finding" else "",
        number=number,
    )
