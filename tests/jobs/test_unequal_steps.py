"""Ranks that ended, or whose recordings do, before those of others."""

import pytest

from pinchpoint.importers.ranks.files import RankFile
from pinchpoint.jobs import merge_parts
from pinchpoint.jobs.parts import write_part
from pinchpoint.jobs.rank_map import record_of
from pinchpoint.report.documents.rank_records import PartHeader, encode_record
from pinchpoint.report.pages.ranks import ranks_page
from pinchpoint.report.terminal import Look, render
from rank_traces import MS, Job

STEP_NS = 11_015_000  # 10 ms of work, 1 ms of transfer, two launches


@pytest.fixture
def answer(tmp_path):
    def of(job):
        records = [
            encode_record(record_of(trace, RankFile(f"rank{r}.json", r)))
            for r, trace in enumerate(job.traces())
        ]
        write_part(tmp_path / "all.part", PartHeader(files=job.ranks), records)
        return merge_parts([tmp_path / "all.part"])

    return of


def said(report):
    text = " ".join(render(ranks_page(report), Look(width=80)).split())
    return text.partition(" ! ")[2].partition(" Nothing worth fixing")[0]


def transfers(report):
    """Collectives a step, and their transfer in it."""
    table = report.tables["collectives"]
    (row,) = table.rows
    found = dict(zip((c.id for c in table.columns), row, strict=True))
    return found["per_step"], found["exposed_transfer"]


@pytest.mark.parametrize(
    ("ranks", "records", "words"),
    [
        (2, lambda r, s: r == 0 or s < 3, "rank 1 recorded fewer steps than the others: 2 of up"),
        (2, lambda r, s: r == 0 or s >= 5, "rank 1 recorded fewer steps than the others: 2 of up"),
        (4, lambda r, s: r < 3 or s < 3, "rank 3 recorded fewer steps than the others: 2 of up"),
        (4, lambda r, s: r < 2 or s < 2 + r, "ranks 2 to 3 recorded fewer steps than the others:"
            " as few as 3 of up"),
    ],
)  # fmt: skip
def test_fewer_steps_of_a_rank_are_said_and_count_as_they_are(answer, ranks, records, words):
    report = answer(Job(ranks=ranks, steps=8, records=records))
    assert said(report) == f"{words} to 7; each rank counts in those that it has"
    assert (report.mismatches, report.stragglers, report.incidents) == ((), (), ())
    assert report.steps.typical_ns == report.steps.unprofiled_ns_predicted == STEP_NS
    assert transfers(report) == (1.0, MS)
    assert "straggler-rank" not in {found.id for found in report.findings}


def test_a_late_rank_is_found_in_the_steps_that_others_have(answer):
    late = Job(steps=8, records=lambda r, s: r == 0 or s < 4, stall_ms=lambda r, s: 4.0 * (r == 0))
    (straggler,) = answer(late).stragglers
    assert (straggler.rank, straggler.late_steps) == (0, (4, 5, 6))
    assert straggler.excess_ns == 4 * MS


# Of one step each nobody waits for another, and no replay can tell that steps are shorter.
def test_ranks_without_a_step_in_common_are_as_recorded(answer):
    report = answer(Job(steps=8, records=lambda r, s: r == 0 or s < 1))
    assert report.steps.unprofiled_ns_predicted == STEP_NS
    assert report.scaling is None or report.scaling.replay_error_ratio is None


@pytest.mark.parametrize("missing", [set(), {7}])  # a window that ends just before a step's end
def test_one_step_more_or_less_is_usual(answer, missing):
    report = answer(Job(steps=8, records=lambda r, s: r == 0 or s not in missing))
    assert said(report) == ""
    assert report.steps.ranks_with_fewer == ()
