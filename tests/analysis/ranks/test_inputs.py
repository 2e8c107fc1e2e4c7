"""Whose inputs are larger, and where they come in."""

import pytest
from msgspec.structs import replace

from builders import TraceBuilder
from pinchpoint.analysis.ranks.inputs import first_inputs, larger_input, uneven_input
from pinchpoint.analysis.ranks.job import reduce
from pinchpoint.analysis.ranks.summarise import summarise
from pinchpoint.analysis.ranks.summary import FirstInput, pack
from pinchpoint.diagnosis.job import diagnose_job
from pinchpoint.diagnosis.rank_finding import RankFinding
from pinchpoint.trace import HostKind
from rank_traces import MS, Job

FLAGS = FirstInput(operator="aten::to", call=0, dims=(96.0,), elements=pack([96] * 6))


def batch(*lengths, operator="aten::index"):
    mean = sum(lengths) / len(lengths)
    return FirstInput(
        operator=operator,
        call=0,
        dims=(96.0, mean),
        elements=pack([96 * length for length in lengths]),
        file="data.py",
        line=7,
        function="collate",
    )


def test_the_first_input_that_differs():
    mine, peer = (FLAGS, batch(900, 1100)), (FLAGS, batch(450, 550))
    found = larger_input(mine, [peer])
    assert (found.ratio, found.mine, found.theirs, found.dimension) == (2.0, 1000, 500, 1)
    assert found.at.file == "data.py"
    assert larger_input(peer, [mine]) is None


@pytest.mark.parametrize(
    ("lengths", "uneven"),
    [
        (((100, 200), (200, 100)), True),
        (((100, 104), (104, 100)), False),  # hardly: 2 % beyond the mean
        (((100, 200), (100, 200)), False),  # both have the long one in the same step
    ],
)
def test_ranks_that_take_turns_at_having_more(lengths, uneven):
    found = uneven_input([(FLAGS, batch(*mine)) for mine in lengths])
    assert (found is not None) == uneven
    assert larger_input(*[(batch(*lengths[0]),), [(batch(*lengths[1]),)]]) is None


def test_what_steps_begin_with():
    b = TraceBuilder()
    for i, length in enumerate((300, 500, 700)):
        at = 10 * MS * i
        b.step(i, at, 10 * MS)
        b.op("aten::item", at + MS, MS, shapes="[[]]", kind=HostKind.OPERATOR)
        b.op("aten::add", at + 3 * MS, MS, shapes=f"[[8, {length}], [8]]", kind=HostKind.OPERATOR)
        b.launch(at + 5 * MS, 1_000, "gemm", at + 6 * MS, MS)
    (found,) = first_inputs(b.trace())
    assert (found.operator, found.dims) == ("aten::add", (8.0, 600.0))


def said_of(job, inputs, *per_rank):
    summaries = [
        replace(summarise(t), inputs=(FLAGS, mine))
        for t, mine in zip(job.traces(), inputs, strict=True)
    ]
    return diagnose_job(reduce(lambda: iter(summaries)), per_rank)


def test_longer_batches_are_said_with_their_place():
    job = Job(steps=6, work_ms=lambda rank, step: (8.0, 16.0)[rank])
    said = said_of(job, (batch(*[500] * 6), batch(*[1000] * 6)))
    (found,) = said.found
    assert "batches 2.00 times as long as its peers' (1,000 against 500" in found.finding.summary
    assert found.finding.summary.endswith("they come in at collate (data.py:7)")
    assert "batches[rank::world_size]" in found.finding.fix
    assert found.predicted.step_ns == pytest.approx(13 * MS, rel=0.03)  # 12 of work, 1 of transfer


def test_ranks_whose_batches_differ_by_turns_lose_the_longest_of_each_step():
    """Both wait as often; shared out evenly each step is 12 ms of work, not 16."""
    job = Job(steps=6, work_ms=lambda rank, step: 16.0 if rank == step % 2 else 8.0)
    lengths = [[1000 if rank == step % 2 else 500 for step in range(6)] for rank in (0, 1)]
    (found,) = said_of(job, [batch(*mine) for mine in lengths]).found
    assert found.id == "straggler-rank"
    assert "batches of unequal size in the same step" in found.finding.summary
    assert found.predicted.step_ns == pytest.approx(13 * MS, rel=0.05)


def test_waiting_for_a_late_rank_is_no_transfer():
    """All ranks but the late one stand in collectives: no other way of moving data helps them."""
    job = Job(ranks=3, steps=6, work_ms=lambda rank, step: (8.0, 8.0, 16.0)[rank])
    quick = [RankFinding("comm-not-overlapped", r, 5 * MS) for r in (0, 1)]
    said = said_of(job, [batch(*[500] * 6)] * 2 + [batch(*[1000] * 6)], *quick)
    gains = {f.id: f.saving_ns for f in said.found}
    assert gains.pop("comm-not-overlapped", 0) <= 1.1 * MS  # the transfer takes 1
    assert set(gains) == {"straggler-rank"}


def test_the_first_sum_of_a_rank_that_serves_the_others_is_no_batch():
    table = FirstInput(
        operator="aten::sum", call=0, dims=(3e6,), elements=pack([3_000_000] * 4),
        file="train.py", line=45, function="serve",
    )  # fmt: skip
    loss = FirstInput(
        operator="aten::sum", call=0, dims=(1536.0,), elements=pack([1536] * 4),
        file="train.py", line=90, function="main",
    )  # fmt: skip
    assert larger_input((table,), [(loss,)]) is None
    assert larger_input((table,), [(replace(loss, line=45, function="serve"),)]) is not None
