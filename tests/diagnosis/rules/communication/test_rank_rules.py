"""What one rank of several cannot tell."""

import pytest
from msgspec.structs import replace

from pinchpoint.analysis.ranks.job import reduce
from pinchpoint.analysis.ranks.summarise import summarise
from pinchpoint.diagnosis.job import diagnose_job
from program import Program
from rank_traces import Job


@pytest.mark.parametrize("cause", ["straggler-rank", "rank0-stall"])
def test_one_rank_cannot_tell_who_is_late(outcome, cause):
    p = Program()
    for _ in p.steps(6):
        p.collective(5_000)
    answer = outcome(cause, p.trace())
    assert answer.answer == "not checked"
    assert "pinchpoint ranks" in answer.record


@pytest.mark.parametrize("cause", ["straggler-rank", "rank0-stall"])
def test_alone_nobody_is_late(outcome, cause):
    p = Program()
    for _ in p.steps(6):
        p.kernel("work", 100)
    assert outcome(cause, p.trace()).answer == "clear"


@pytest.mark.parametrize(
    ("contended", "stall_ms", "more_ms", "answer"),
    [
        pytest.param(False, 5.0, 0.0, "found", id="late by its host"),
        pytest.param(True, 5.0, 0.0, "not checked", id="others took the cores of its host"),
        pytest.param(True, 0.0, 5.0, "found", id="more device work, whatever others do"),
    ],
)
def test_who_is_late_of_itself(contended, stall_ms, more_ms, answer):
    job = Job(
        steps=6,
        stall_ms=lambda rank, step: stall_ms * rank,
        work_ms=lambda rank, step: 10.0 + more_ms * rank,
    )
    summaries = [replace(summarise(t), contended=contended) for t in job.traces()]
    said = diagnose_job(reduce(lambda: iter(summaries)), [])
    (straggler,) = (o for o in said.outcomes if o.id == "straggler-rank")
    assert straggler.answer == answer
