"""One clock for everything that a page says: without the profiler, or as recorded.

A document has both. ``as_recorded`` turns it to the recorded times: the parts of the step as the
file has them, gains and what pieces are worth as the same share of the recorded step.
"""

from typing import TYPE_CHECKING, Literal, TypeVar

from msgspec.structs import replace

from pinchpoint.diagnosis.finding import Finding
from pinchpoint.report.documents.causal import CriticalPathInfo, PieceInfo
from pinchpoint.report.documents.ladder import LadderInfo, RungInfo
from pinchpoint.report.documents.report import Report, ResultTable

if TYPE_CHECKING:
    from pinchpoint.report.documents.ranks import RanksReport


Clock = Literal["unprofiled", "recorded"]
AS_RECORDED, WITHOUT_PROFILER = "as recorded", "without the profiler"  # of the times of a table
WITH_NAMES = "as recorded with names"  # the other window of a run, whose steps are longer


def on_clock(report: Report, clock: Clock) -> Report:
    """The report with all times on one clock."""
    return as_recorded(report) if clock == "recorded" else report


def has_two_clocks(report: Report) -> bool:
    """Whether the step without the profiler is known, and another one than the recorded."""
    known = report.steps.unprofiled_ns_predicted
    return known is not None and as_recorded(report) != report


def as_recorded(report: Report) -> Report:
    """The report with recorded times; as it is where no other times are known."""
    ladder, recorded = report.fix_ladder, _recorded_base_ns(report)
    base = report.steps.base_ns or report.steps.unprofiled_ns_predicted
    if report.steps.unprofiled_ns_predicted is None or not recorded or not base:
        return report
    ratio = recorded / base
    return replace(
        report,
        steps=replace(
            report.steps,
            unprofiled_ns_predicted=None,
            unprofiled_ns_range=None,
            unprofiled_not_closer=None,
            unprofiled_how=None,
            base_ns=recorded,
        ),
        breakdown=tuple(
            replace(p, unprofiled_ns_per_step=None, base_ns_per_step=p.recorded_base_ns_per_step)
            for p in report.breakdown
        ),
        verdict=f"{report.verdict} (Judged without the profiler.)" if report.verdict else "",
        findings=tuple(_finding(f, ratio) for f in report.findings),
        together_ns=_scaled(report.together_ns, ratio),
        together_range_ns=_range(report.together_range_ns, ratio),
        fix_ladder=None if ladder is None else _ladder(ladder, recorded, ratio),
        ladder=tuple(_piece(piece, ratio) for piece in report.ladder),
        critical_path=None if report.critical_path is None else _path(report.critical_path, ratio),
        tables={id_: _table(table, ratio) for id_, table in report.tables.items()},
    )


def job_on_clock(report: "RanksReport", clock: Clock) -> "RanksReport":
    """The report about a job with all times on one clock."""
    return job_as_recorded(report) if clock == "recorded" else report


def job_as_recorded(report: "RanksReport") -> "RanksReport":
    """The report about a job with recorded times; as it is where no other times are known."""
    steps, ladder = report.steps, report.fix_ladder
    base, recorded = steps.unprofiled_ns_predicted, steps.typical_ns
    if not base or not recorded or base == recorded:
        return report
    ratio = recorded / base
    return replace(
        report,
        steps=replace(steps, unprofiled_ns_predicted=None),
        breakdown=tuple(replace(p, unprofiled_ns_per_step=None) for p in report.breakdown),
        verdict=f"{report.verdict} (Judged without the profiler.)" if report.verdict else "",
        findings=tuple(_finding(f, ratio) for f in report.findings),
        fix_ladder=None if ladder is None else _ladder(ladder, recorded, ratio),
        what_if=tuple(replace(w, step_ns=round(w.step_ns * ratio)) for w in report.what_if),
    )


def _recorded_base_ns(report: Report) -> int | None:
    if report.fix_ladder is not None and report.fix_ladder.recorded_base_ns is not None:
        return report.fix_ladder.recorded_base_ns
    return report.steps.mean_ns if report.steps.base_ns is not None else report.steps.typical_ns


_SomeFinding = TypeVar("_SomeFinding", bound=Finding)


def _finding(finding: _SomeFinding, ratio: float) -> _SomeFinding:
    return replace(
        finding,
        predicted_step_ns=_scaled(finding.predicted_step_ns, ratio),
        predicted_range_ns=_range(finding.predicted_range_ns, ratio),
        given_step_ns=_scaled(finding.given_step_ns, ratio),
    )


def _ladder(ladder: LadderInfo, recorded_ns: int, ratio: float) -> LadderInfo:
    rungs = tuple(_rung(rung, ratio) for rung in ladder.rungs)
    return replace(ladder, base_ns=recorded_ns, rungs=rungs)


def _rung(rung: RungInfo, ratio: float) -> RungInfo:
    low, high = rung.range_ns
    return replace(
        rung,
        step_ns=round(rung.step_ns * ratio),
        range_ns=(round(low * ratio), round(high * ratio)),
        sure_ns=round(rung.sure_ns * ratio),
        base_ns=round(rung.base_ns * ratio),
    )


_OF_THE_DEVICE = ("device_ns", "limit_ns")  # takes as long with the profiler as without


def _piece(piece: PieceInfo, ratio: float) -> PieceInfo:
    timed = [f for f in piece.__struct_fields__ if f.endswith("_ns") and f not in _OF_THE_DEVICE]
    return replace(piece, **{field: _scaled(getattr(piece, field), ratio) for field in timed})


def _path(path: CriticalPathInfo, ratio: float) -> CriticalPathInfo:
    stretches = (
        replace(
            one,
            start_ns=round(one.start_ns * ratio),
            duration_ns=round(one.duration_ns * ratio),
        )
        for one in path.stretches
    )
    per_step = {kind: round(ns * ratio) for kind, ns in path.ns_per_step.items()}
    return replace(path, ns_per_step=per_step, stretches=tuple(stretches))


def _table(table: ResultTable, ratio: float) -> ResultTable:
    """A table of times without the profiler as shares of the recorded step; others as they are."""
    if table.clock != WITHOUT_PROFILER:
        return table
    ns = [c.unit == "ns" and c.id not in _OF_THE_DEVICE for c in table.columns]
    rows = (
        tuple(_scaled(v, ratio) if of else v for v, of in zip(row, ns, strict=True))
        for row in table.rows
    )
    return replace(table, clock=AS_RECORDED, rows=tuple(rows))


def _scaled(ns: int | None, ratio: float) -> int | None:
    return None if ns is None else round(ns * ratio)


def _range(between: tuple[int, int] | None, ratio: float) -> tuple[int, int] | None:
    return None if between is None else (round(between[0] * ratio), round(between[1] * ratio))
