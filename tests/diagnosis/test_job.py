import pytest

from pinchpoint.analysis.ranks.job import reduce
from pinchpoint.analysis.ranks.summarise import summarise
from pinchpoint.diagnosis.job import RankFinding, diagnose_job
from rank_traces import MS, US, Job


def diagnosed(job, *per_rank):
    summaries = [summarise(trace) for trace in job.traces()]
    return diagnose_job(reduce(lambda: iter(summaries)), per_rank)


def near(ms):
    return pytest.approx(ms * MS, abs=100 * US)


def test_a_healthy_job_has_no_finding():
    said = diagnosed(Job(ranks=4))
    assert said.found == ()
    assert {o.id: o.answer for o in said.outcomes} == {
        "nccl-slow-transport": "clear",
        "rank0-stall": "clear",
        "straggler-rank": "clear",
    }


def test_work_that_one_rank_has_too_much_of_goes_to_the_others():
    said = diagnosed(
        Job(
            work_ms=lambda rank, step: (4.0, 12.0)[rank],
            kernels=lambda rank, step: (4, 12)[rank],
        )
    )
    (found,) = said.found
    assert found.id == "straggler-rank"
    assert found.finding.summary.startswith("Rank 1 holds up the others by 8.00 ms a step")
    assert found.predicted.step_ns == pytest.approx(9 * MS, rel=0.05)
    assert found.finding.fix.startswith("Share the work out evenly")


def test_what_only_rank_0_does_on_its_host():
    said = diagnosed(Job(ranks=3, stall_ms=lambda rank, step: 5.0 * (rank == 0)))
    assert [f.id for f in said.found] == ["rank0-stall"]
    assert "what only rank 0 does: collecting garbage" in said.found[0].finding.summary


def test_another_rank_that_stalls_is_a_straggler():
    said = diagnosed(Job(ranks=3, stall_ms=lambda rank, step: 5.0 * (rank == 2)))
    assert [f.id for f in said.found] == ["straggler-rank"]
    assert "collecting garbage" in said.found[0].finding.summary


def test_a_slow_link_is_no_straggler():
    said = diagnosed(Job(ranks=2, transfer_ms=30.0))
    assert [f.id for f in said.found] == ["nccl-slow-transport"]
    # 64 MiB at 225 GB/s of bus bandwidth between two ranks
    assert said.found[0].predicted.range_ns[0] == near(10 + 0.3 * 0.625)


def test_waiting_is_no_slow_link():
    said = diagnosed(Job(ranks=2, work_ms=lambda rank, step: (5.0, 60.0)[rank]))
    assert [f.id for f in said.found] == ["straggler-rank"]


def test_ranks_that_take_turns_are_one_finding():
    said = diagnosed(Job(ranks=4, steps=9, stall_ms=lambda rank, step: 5.0 * (rank == step % 4)))
    (found,) = said.found
    assert found.id == "straggler-rank"
    assert found.finding.summary.startswith("Ranks take turns at being late, 5.00 ms a step")


def test_a_difference_too_small_to_matter():
    said = diagnosed(Job(ranks=4, work_ms=lambda rank, step: 10.0 + 0.1 * (rank == 1)))
    assert said.found == ()


def test_a_cause_on_a_rank_that_nobody_waits_for_gives_nothing():
    job = Job(ranks=2, work_ms=lambda rank, step: (10.0, 12.0)[rank])
    quick = diagnosed(job, RankFinding("launch-bound", 0, 3 * MS))
    both = diagnosed(
        job, RankFinding("launch-bound", 0, 3 * MS), RankFinding("launch-bound", 1, 3 * MS)
    )
    assert "launch-bound" not in [f.id for f in quick.found]
    gain = next(f for f in both.found if f.id == "launch-bound")
    assert gain.saving_ns == near(3)
    assert gain.ranks == (0, 1)


def test_a_cause_of_communication_counts_what_the_last_rank_would_win():
    found = [RankFinding("small-collectives", r, ns * MS) for r, ns in ((0, 5), (1, 2))]
    said = diagnosed(Job(ranks=2, transfer_ms=5.0, bytes=1 << 20), *found)
    assert [(f.id, f.saving_ns) for f in said.found] == [("small-collectives", 2 * MS)]


def test_places_that_one_rank_names_for_one_cause_are_told_apart():
    job = Job(ranks=2, work_ms=lambda rank, step: (12.0, 12.0)[rank])
    both = [RankFinding("host-hotspot", r, 2 * MS, "load data.py") for r in (0, 1)]
    said = diagnosed(job, *both, RankFinding("host-hotspot", 1, 1 * MS, "lock cache.py"))
    (found,) = said.found  # who is never waited for wins nothing by less of it
    assert (found.ranks, found.saving_ns) == ((0, 1), near(2))
    assert found.of_ranks[0].place == "load data.py"


def test_waits_for_other_ranks_are_what_collectives_take():
    job = Job(ranks=2, transfer_ms=5.0, bytes=1 << 20)
    waits = [RankFinding("host-waits", r, 1 * MS) for r in (0, 1)]
    calls = [RankFinding("small-collectives", r, 2 * MS) for r in (0, 1)]
    assert [f.id for f in diagnosed(job, *waits).found] == ["host-waits"]
    assert [f.id for f in diagnosed(job, *waits, *calls).found] == ["small-collectives"]


def test_ranks_that_never_meet():
    said = diagnosed(Job(ranks=2, left_out={(r, s, 0) for r in (0, 1) for s in range(5)}))
    assert {o.id: o.answer for o in said.outcomes}["straggler-rank"] == "not checked"


@pytest.mark.parametrize(
    ("job", "fastest_ms"),
    [
        (Job(work_ms=lambda rank, step: (4.0, 12.0)[rank], kernels=lambda rank, step: 4), 4),
        (Job(ranks=2, transfer_ms=30.0), 10),
    ],
    ids=["a straggler", "a slow link"],
)
def test_no_fix_of_the_job_beats_its_fastest_rank(job, fastest_ms):
    (found,) = diagnosed(job).found
    assert found.predicted.bound_ns == near(fastest_ms)
    assert found.predicted.bound_ns <= found.predicted.range_ns[0] <= found.predicted.step_ns
