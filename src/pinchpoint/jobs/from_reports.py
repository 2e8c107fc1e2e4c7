"""Several diagnosed recordings that turn out to be ranks of one job."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pinchpoint.analysis.ranks.summarise import summarise
from pinchpoint.diagnosis.finding import Finding
from pinchpoint.diagnosis.registry import rules
from pinchpoint.jobs.parts import read_parts, write_part
from pinchpoint.jobs.read_rank import MOST_FINDINGS
from pinchpoint.report.document import Report
from pinchpoint.report.ranks.build import report_on
from pinchpoint.report.ranks.document import RanksReport
from pinchpoint.report.ranks.records import FoundOnRank, PartHeader, RankRecord, encode_record
from pinchpoint.trace import Trace


def is_rank_of_a_job(report: Report) -> bool:
    """Whether the recording says which rank of how many it is."""
    return report.source.rank is not None and (report.source.world_size or 0) > 1


def record_from(trace: Trace, report: Report) -> RankRecord:
    """The record of a recording that is diagnosed already."""
    base = report.steps.unprofiled_ns_predicted or report.steps.typical_ns or 0
    return RankRecord(
        path=report.source.path,
        rank=report.source.rank,
        label=f"rank {report.source.rank}",
        summary=summarise(trace),
        found=tuple(
            FoundOnRank(saving_ns=_saving(base, item), item=item)
            for item in report.findings[:MOST_FINDINGS]
        ),
        not_checked=tuple(item.id for item in report.not_checked),
        crashed=tuple(item.id for item in report.crashed),
    )


def _saving(base: int, item: Finding) -> int:
    if item.predicted_step_ns is None:
        return 0
    return max(base - item.predicted_step_ns, 0)


def job_of(records: Sequence[RankRecord]) -> RanksReport | None:
    """The report about the job; None unless the records are different ranks of one world."""
    worlds = {r.summary.world_size for r in records if r.summary is not None}
    ranks = {r.rank for r in records}
    if len(records) < 2 or len(worlds) != 1 or len(ranks) != len(records):
        return None
    with tempfile.TemporaryDirectory(prefix="pinchpoint-ranks-") as folder:
        part = Path(folder) / "all.part"
        write_part(part, PartHeader(files=len(records)), map(encode_record, records))
        return report_on(read_parts([part]))


def without_guesses(report: Report) -> Report:
    """A rank's own report without what the report about the job answers."""
    of_job = {id_ for id_, known in rules().items() if known.rule.looks_at == "job"}
    return msgspec.structs.replace(
        report,
        findings=tuple(f for f in report.findings if f.id not in of_job),
        not_checked=tuple(i for i in report.not_checked if i.id not in of_job),
        next_command=report.next_command if report.findings else None,
    )
