import pytest
from msgspec.structs import replace

from host_ranks import traces_of_hosts
from pinchpoint.analysis.ranks.job import reduce
from pinchpoint.analysis.ranks.summarise import summarise
from pinchpoint.diagnosis.job import diagnose_job
from pinchpoint.diagnosis.rank_finding import RankFinding
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
        "stages-take-turns": "clear",
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


def of_hosts(*found, timed_ms=None):
    """Rank 1 computes for 20 ms of a step of 22, rank 0 for 10."""
    timed_ns = None if timed_ms is None else timed_ms * MS
    summaries = [
        replace(summarise(trace), timed_step_ns=timed_ns, contended=True)
        for trace in traces_of_hosts(10, 20)
    ]
    return diagnose_job(reduce(lambda: iter(summaries)), found)


def test_without_devices_a_cause_counts_as_far_as_the_others_wait():
    alone = RankFinding("host-hotspot", 0, 8 * MS, "load data.py")
    assert of_hosts(alone).found == ()  # rank 1 computes for longer
    late = RankFinding("host-hotspot", 1, 8 * MS, "load data.py")
    assert of_hosts(late).found[0].saving_ns == near(8)
    both = RankFinding("host-hotspot", 1, 15 * MS, "load data.py")
    assert of_hosts(both).found[0].saving_ns == near(10)  # then rank 0 is the last


@pytest.mark.parametrize(
    ("in_steps_ms", "won_ms", "in_turn"),
    [
        (((10, 0), (0, 10)), 10, True),  # each step has one that waits
        (((10, 0), (10, 0)), 5, False),  # both wait in the same steps
        (((10, 0), ()), 5, False),  # of one rank it is not known
    ],
)
def test_what_ranks_do_in_turn_holds_up_each_step(in_steps_ms, won_ms, in_turn):
    summaries = [
        replace(summarise(trace), contended=True) for trace in traces_of_hosts(10, 20, in_turn=True)
    ]
    waits = [
        RankFinding("host-waits", r, 5 * MS, "fetch a.py", None, (), tuple(ms * MS for ms in own))
        for r, own in enumerate(in_steps_ms)
    ]
    (found,) = diagnose_job(reduce(lambda: iter(summaries)), waits).found
    assert found.saving_ns == pytest.approx(won_ms * MS, rel=0.05)
    assert found.in_turn is in_turn


def test_gains_are_those_of_the_step_that_the_ranks_timed():
    late = RankFinding("host-hotspot", 1, 8 * MS, "load data.py")
    said = of_hosts(late, timed_ms=11)
    assert said.base_ns == near(11)
    assert said.found[0].saving_ns == near(4)


def test_a_cause_ranges_from_what_its_ranks_win_at_least_to_what_they_win_at_most():
    late = RankFinding("host-hotspot", 1, 8 * MS, "load data.py", (6 * MS, 9 * MS))
    found = of_hosts(late).found[0]
    assert found.saving_ns == near(8)
    assert found.predicted.range_ns == (near(13), near(16))


def far(rank, saving_ms, *steps, place="tick train.py"):
    ends = (saving_ms * MS, saving_ms * MS)
    return RankFinding("python-gc", rank, saving_ms * MS, place, ends, steps)


@pytest.mark.parametrize(
    ("found", "saving_ms"),
    [
        pytest.param([far(0, 4, 8, 16, 24)], 4, id="one rank, and the other waits"),
        pytest.param([far(0, 4, 8, 16), far(1, 3, 8, 16)], 4, id="both in the same steps"),
        pytest.param([far(0, 4, 8, 16), far(1, 3, 4, 12)], 7, id="in turn"),
        pytest.param([far(0, 4, 8, 16), far(1, 3, 8, 12)], 5.5, id="half of them in the same"),
    ],
)
def test_far_steps_of_the_run_are_as_long_for_all_ranks(found, saving_ms):
    said = of_hosts(*found)
    assert [(f.id, f.saving_ns) for f in said.found] == [("python-gc", near(saving_ms))]


def test_what_makes_far_steps_long_is_told_once():
    there = RankFinding("sync-in-loop", 0, 12 * MS, "tick train.py")
    recorded = RankFinding("exceptional-steps", 1, 8 * MS, "main train.py")
    assert [f.id for f in of_hosts(far(0, 4, 8, 16), there, recorded).found] == ["python-gc"]
    elsewhere = RankFinding("host-hotspot", 1, 8 * MS, "load data.py")
    kept = of_hosts(far(0, 4, 8, 16), elsewhere).found
    assert {f.id for f in kept} == {"python-gc", "host-hotspot"}


def test_recorded_steps_that_wait_for_a_rank_are_explained_by_its_far_steps():
    job = Job(steps=10, stall_ms=lambda r, s: 40.0 * (r == 1 and s == 5))
    assert [f.id for f in diagnosed(job).found] == ["straggler-rank"]
    assert [f.id for f in diagnosed(job, far(1, 4, 5)).found] == ["python-gc"]
    assert "straggler-rank" in [f.id for f in diagnosed(job, far(0, 4, 5)).found]


def test_a_synchronisation_wins_no_more_than_the_device_is_idle():
    waits = RankFinding("sync-in-loop", 0, 5 * MS, "main train.py")
    assert diagnosed(Job(), waits).found == ()


def test_garbage_that_is_collected_where_objects_are_exchanged_goes_with_them():
    """Of a step of 22 ms: 4 by the exchange, 6 in far steps by what it leaves."""
    objects = RankFinding("objects-between-ranks", 1, 4 * MS, "update score.py")
    garbage = RankFinding("python-gc", 1, 6 * MS, "update score.py", None, (5, 16))
    (found,) = of_hosts(objects, garbage).found
    assert found.id == "objects-between-ranks"
    assert found.saving_ns == near(10)
    elsewhere = replace_place(garbage, "tick train.py")
    assert {f.id for f in of_hosts(objects, elsewhere).found} == {
        "objects-between-ranks",
        "python-gc",
    }


def replace_place(found, place):
    return RankFinding(found.id, found.rank, found.saving_ns, place, None, found.far_steps)


def test_standing_in_collectives_wins_no_more_than_their_transfer():
    """Rank 0 stands in the all-reduce for 11 ms, 10 of them for rank 1, which comes last."""
    waits = RankFinding("host-waits", 0, 11 * MS, "reduce train.py", None, (), (), True)
    assert of_hosts(waits).found == () or of_hosts(waits).found[0].saving_ns <= 1.1 * MS


def test_own_work_for_collectives_goes_with_them():
    """Both ranks pack what they send for 4 ms; the wait of rank 0 stays."""
    sent = [RankFinding("broadcast-in-steps", rank, 12 * MS, beside_ns=4 * MS) for rank in (0, 1)]
    alone = [RankFinding("broadcast-in-steps", rank, 12 * MS) for rank in (0, 1)]
    (found,), without = of_hosts(*sent).found, of_hosts(*alone).found
    assert 4 * MS <= found.saving_ns <= 5.1 * MS
    assert without == () or without[0].saving_ns <= 1.1 * MS


def test_one_rank_that_is_late_in_some_steps_is_named_for_these():
    """In one of three steps, as no other rank ever is."""
    late = Job(ranks=3, steps=9, stall_ms=lambda rank, step: 9.0 * (rank == 1 and step in (3, 6)))
    (found,) = [f for f in diagnosed(late).found if f.id == "straggler-rank"]
    assert found.finding.summary.startswith("Rank 1 is late in 2 of ")
