"""The ladder of fixes as a block: bars from today's step to the step after each change."""

from typing import TYPE_CHECKING

from pinchpoint.report.blocks import Ladder, Rung
from pinchpoint.report.documents.ladder import LadderInfo, RungInfo
from pinchpoint.report.documents.report import Report, finding_key
from pinchpoint.report.quantity import in_unit, span, time_unit
from pinchpoint.report.words.ladder import (
    MOST_RUNGS,
    clock_words,
    rung_label,
    takes,
    title,
    why_this_order,
)

if TYPE_CHECKING:
    from pinchpoint.report.documents.ranks import RanksReport


def ladder_block(report: "Report | RanksReport") -> Ladder | None:
    """The block; None where no gain in time is known."""
    ladder = report.fix_ladder
    if ladder is None or not ladder.base_ns:
        return None
    unit = time_unit(ladder.base_ns)
    findings = [rung for rung in ladder.rungs if rung.kind == "finding"][:MOST_RUNGS]
    others = [rung for rung in ladder.rungs if rung.kind != "finding"]
    own: dict[str, list[int]] = {}  # numbers of findings with a rung, by id, in their order
    for number, finding in enumerate(report.findings, 1):
        if finding.predicted_step_ns is not None:
            own.setdefault(finding.id, []).append(number)
    next_of = {id_: iter(of) for id_, of in own.items()}
    today = Rung("today", in_unit(ladder.base_ns, unit), 1.0, 1.0, 1.0, role="today")
    return Ladder(
        title=title(ladder, clock_words(report)),
        unit=unit,
        rungs=(
            today,
            *(
                _rung(report, rung, unit, next(next_of.get(rung.id, iter(())), None))
                for rung in findings
            ),
            *(_rung(report, rung, unit, None) for rung in others),
        ),
        note=why_this_order(ladder) or "",
    )


def _rung(report: "Report | RanksReport", rung: RungInfo, unit: str, number: int | None) -> Rung:
    (low, high), ids = rung.range_ns, [finding.id for finding in report.findings]
    ladder = report.fix_ladder or LadderInfo(base_ns=rung.base_ns)
    base_ns = ladder.base_ns
    first = [str(ids.index(id_) + 1) for id_ in rung.after if id_ in ids]
    after = f", after {' and '.join(first)}" if first else ""
    return Rung(
        label=rung_label(ladder, rung),
        figure=in_unit(rung.step_ns, unit),
        ratio=min(rung.step_ns / base_ns, 1.0),
        low=min(low / base_ns, 1.0),
        high=min(high / base_ns, 1.0),
        between=span(low, high, unit),
        takes=takes(rung) + after,
        role=rung.kind,  # type: ignore[arg-type]
        id=finding_key(report.findings[:number]) if number else "",
        number=number,
    )
