from dataclasses import replace
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from pinchpoint.analysis.ranks.accounting import breakdown, scaling
from pinchpoint.analysis.ranks.job import reduce
from pinchpoint.analysis.ranks.stragglers import excess, lateness
from pinchpoint.analysis.ranks.summarise import summarise
from pinchpoint.analysis.ranks.summary import pack, unpack
from pinchpoint.analysis.ranks.what_if import as_recorded
from pinchpoint.trace import HostKind
from rank_traces import MS, US, Job


def job_of(job):
    summaries = [summarise(trace) for trace in job.traces()]
    return reduce(lambda: iter(summaries))


def near(ms):
    return pytest.approx(ms * MS, abs=60 * US)


def test_alike_ranks_hold_nobody_up():
    job = job_of(Job(ranks=3))
    assert job.step_ns == near(11)
    assert job.late.cost_ns < 10 * US
    assert not job.late.stragglers
    assert not job.mismatches


@pytest.mark.parametrize("collective", ["allreduce", "alltoall"])
def test_waiting_and_transfer_are_told_apart(collective):
    late = Job(ranks=2, work_ms=lambda rank, step: 10 + 5 * rank, collective=collective)
    job = job_of(late)
    (kind,) = job.between.kinds
    assert kind.transfer_ns == near(1)
    assert job.between.waiting_ns[0] == near(5)
    assert job.between.waiting_ns[1] == near(0)
    assert job.between.transfer_ns[0] == near(1)
    assert kind.per_step == 1
    # 64 MiB in 1 ms; of two ranks an all-reduce sends all of it, an all-to-all keeps half at home
    sent = (64 << 20) // (2 if collective == "alltoall" else 1)
    assert kind.bus_bytes_per_s == pytest.approx(sent * 1e3, rel=1e-3)


def test_calls_without_a_name_are_one_of_both():
    late = Job(ranks=2, work_ms=lambda rank, step: 10 + 5 * rank, collective="other")
    job = job_of(late)
    assert not job.between.transfer_ns.any()
    assert not job.between.waiting_ns.any()
    shares = {share.part.id: share.ns_per_step for share in breakdown(job)}
    assert shares["between-ranks"] == near(3.5)  # 6 ms on the one rank, 1 ms on the other
    assert not {"exposed-transfer", "waiting-for-ranks"} & set(shares)
    found = scaling(job)
    assert (found.untold_ns_per_step, found.limit) == (near(3.5), "waiting or transfer")
    assert found.waiting_ns_per_step == found.transfer_ns_per_step == 0


@pytest.mark.parametrize(("late", "shift"), [(0, -50), (1, 50), (0, 50), (1, 0)])
def test_the_late_rank_whatever_the_clocks_say(late, shift):
    job = job_of(
        Job(
            ranks=2,
            steps=20,
            work_ms=lambda rank, step: 12.0 if rank == late else 10.0,
            shift_ns=lambda rank: rank * shift * MS,
            drift=lambda rank: rank * 20e-6,
        )
    )
    (straggler,) = job.late.stragglers
    assert straggler.rank == late
    assert straggler.excess_ns == near(2)
    assert job.clocks.offset_ns[1] == pytest.approx(shift * MS, abs=20 * US)


@pytest.mark.parametrize("shift", [-50, -3, 12, 50])
def test_calls_of_unmarked_steps_find_each_other_whatever_the_clocks_say(shift):
    job = job_of(
        Job(
            ranks=2,
            steps=24,
            markers=False,
            work_ms=lambda rank, step: 10.0 + 0.02 * (step * step % 11) + 2.0 * (rank == 1),
            shift_ns=lambda rank: rank * shift * MS,
            drift=lambda rank: rank * 20e-6,
        )
    )
    assert [s.rank for s in job.late.stragglers] == [1]
    assert job.clocks.offset_ns[1] == pytest.approx(shift * MS, abs=20 * US)


def test_a_straggler_among_many():
    job = job_of(Job(ranks=24, steps=4, work_ms=lambda rank, step: 14.0 if rank == 17 else 10.0))
    (straggler,) = job.late.stragglers
    assert straggler.rank == 17
    assert job.between.was_last[17] == 4
    assert (job.between.was_last[:17] == 0).all()


def test_two_equally_slow_ranks_are_both_named():
    job = job_of(Job(ranks=8, work_ms=lambda rank, step: 14.0 if rank in (2, 5) else 10.0))
    assert {s.rank for s in job.late.stragglers} == {2, 5}


def test_since_which_step():
    job = job_of(
        Job(ranks=4, steps=12, stall_ms=lambda rank, step: 6.0 * (rank == 2 and step >= 7))
    )
    (straggler,) = job.late.stragglers
    assert job.facts.step_numbers[straggler.since] == 3 + 7
    (late,) = job.late_ranks
    assert late.doing[0].subject == "garbage collection"
    assert late.doing[0].ns_per_step == near(6)


def test_where_the_late_host_was():
    job = job_of(
        Job(
            ranks=3,
            stall_ms=lambda rank, step: 6.0 * (rank == 0),
            stall_name="train.py(12): log_everything",
            stall_kind=HostKind.PYTHON,
        )
    )
    (late,) = job.late_ranks
    assert late.doing[0].subject == "host work"
    assert (late.doing[0].place.file, late.doing[0].place.line) == ("train.py", 12)


def test_ranks_that_take_turns():
    job = job_of(Job(ranks=4, steps=9, stall_ms=lambda rank, step: 5.0 * (rank == step % 4)))
    assert job.late.stragglers == ()
    assert job.late.cost_ns == near(5)
    assert {i.rank for i in job.late.incidents} == {0, 1, 2, 3}


def test_two_ranks_that_are_late_by_chance_are_not_called_stragglers():
    extra = ((3.7, 0.0), (3.9, 0.0), (0.0, 0.0), (0.3, 0.0), (0.0, 2.7))  # ms of each rank
    job = job_of(Job(ranks=2, steps=5, work_ms=lambda rank, step: 10.0 + extra[step][rank]))
    assert not job.late.stragglers
    assert [i.rank for i in job.late.incidents][:2] == [0, 1]


def test_more_work_and_slower_clocks_are_told_apart():
    more = job_of(
        Job(
            ranks=3,
            work_ms=lambda rank, step: 20.0 if rank == 1 else 10.0,
            kernels=lambda rank, step: 8 if rank == 1 else 4,
        )
    )
    slower = job_of(Job(ranks=3, work_ms=lambda rank, step: 13.0 if rank == 1 else 10.0))
    assert more.late_ranks[0].doing[0].subject == "more work"
    assert slower.late_ranks[0].doing[0].subject == "slow device"


def test_unchanged_replay_gives_the_recorded_step():
    job = job_of(Job(ranks=3, steps=6, calls=3, work_ms=lambda rank, step: 9.0 + rank))
    assert abs(job.replay.identity_error) < 1e-3
    assert job.replay.recorded_ns == near(11 + 3)


def test_what_the_step_would_be():
    job = job_of(Job(ranks=3, work_ms=lambda rank, step: 14.0 if rank == 2 else 8.0))
    replay, late = job.replay, np.array([2])
    assert replay.base_ns == near(15)
    assert replay.ask(replay.as_peers(late)) == near(9)
    assert replay.ask(replay.balanced(late)) == near(11)
    assert replay.ask(transfer_factors={0: 0.5}) == near(14.5)
    assert replay.ask(hidden=True) == near(14)


def test_a_rank_that_its_host_holds_up_takes_work_for_nothing():
    """Work of 4 and 20 ms is 12 each, and as long as the host of one of them needs 15."""
    job = job_of(Job(ranks=2, work_ms=lambda rank, step: 20.0 if rank == 1 else 4.0))
    facts = replace(job.facts, host_ns=np.array([[15.0 * MS]]) * np.ones_like(job.facts.host_ns))
    replay = replace(job.replay, facts=facts)
    shared = replay.balanced(np.array([1]))
    assert [np.nanmax(ns) for ns in shared.ns] == [near(12), near(12)]
    assert replay.ask(shared) == near(15)


def test_a_host_that_runs_ahead_may_be_slow_in_single_steps():
    """Its mean of 12 ms bounds the step, not the 30 ms of one of them."""
    job = job_of(Job(ranks=2, steps=5, work_ms=lambda rank, step: 20.0 if rank == 1 else 4.0))
    host = np.array([[30.0, 7.5, 7.5, 7.5, 7.5]] * 2)[:, : job.facts.host_ns.shape[1]] * MS
    facts = replace(job.facts, host_ns=host)
    replay = replace(job.replay, facts=facts)
    assert replay.ask(replay.balanced(np.array([1]))) == pytest.approx(13 * MS, rel=0.02)
    assert replay.ask(as_recorded(facts)) == near(21)


def test_a_missing_call_is_named():
    job = job_of(Job(ranks=4, steps=4, calls=3, left_out={(2, 2, 1)}))
    first = job.mismatches[0]
    assert (first.what, first.step, first.ranks) == ("missing", 5, (2,))


@pytest.mark.parametrize(
    ("how", "more"),
    [
        ("sequence numbers", {"sequence": True}),
        ("step numbers and order", {}),
        ("kinds and distances in time", {"markers": False}),
    ],
)
def test_how_calls_are_matched(how, more):
    made = Job(
        ranks=3,
        steps=8,
        work_ms=lambda rank, step: 10.0 + 0.3 * (step * step % 7),  # no two alike in a row
        shift_ns=lambda rank: rank * 7 * MS,
        **more,
    )
    job = job_of(made)
    assert job.matched_by == (how,)
    assert job.clocks.offset_ns.tolist() == pytest.approx([0, 7 * MS, 14 * MS], abs=5 * US)


def test_recordings_of_different_times_are_not_matched():
    job = job_of(Job(ranks=2, steps=12, markers=False, shift_ns=lambda rank: rank * 700 * MS))
    assert job.clocks.aligned.tolist() == [False, False]
    assert job.replay is None


def test_steps_without_markers_are_numbered_alike():
    summaries = [summarise(t) for t in Job(ranks=3, steps=8, markers=False).traces()]
    late = summaries[1].steps  # its recording began four steps earlier than that of the others
    late = msgspec.structs.replace(late, number=pack(unpack(late.number) + 4))
    summaries[1] = msgspec.structs.replace(summaries[1], steps=late)
    job = reduce(lambda: iter(summaries))
    assert np.diff(job.step_shifts).tolist() == [-4, 4]
    assert not np.isnan(job.facts.window_ns).any()


def test_marked_steps_keep_their_numbers():
    job = job_of(Job(ranks=2, steps=4))
    assert job.step_shifts.tolist() == []
    assert job.facts.step_numbers[-1] == 6


def test_a_rank_whose_recording_is_refused_is_kept_apart():
    traces = Job(ranks=3).traces()
    summaries = [summarise(t) for t in traces]
    empty = summarise(Job(ranks=1, steps=0).traces()[0])
    summaries[1] = msgspec.structs.replace(empty, rank=1)
    job = reduce(lambda: iter(summaries))
    assert job.facts.ranks[1].refused
    assert job.facts.usable.tolist() == [True, False, True]
    assert job.step_ns == near(11)


def test_a_single_rank():
    job = job_of(Job(ranks=1))
    assert job.late.cost_ns == 0
    assert not job.late.stragglers


def test_device_work_shows_who_is_late_through_what_recording_does_to_hosts():
    """Recorded, both take as long: one has its device busy, the other a host that is slowed."""
    members = np.array([0, 0])
    own = np.array([[90.0, 92.0, 95.0], [91.0, 91.0, 86.0]]) * MS
    parts = [SimpleNamespace(id=i, group=g) for i, g in (("gemm", "device"), ("wait", "idle"))]
    facts = SimpleNamespace(
        own_ns=own,
        usable=np.array([True, True]),
        parts=parts,
        worked_ns=np.full((2, 3), np.nan),
        inputs={},
        parts_ns=np.array([[15.0, 75.0], [62.0, 28.0]]) * MS,
        work_ns=np.array([15.0, 62.0]) * MS,
        recording_ns=np.full((2, 3), 60.0) * MS,
        unrecorded_ns=np.array([[20.0] * 3, [66.0] * 3]) * MS,
        ranks=[SimpleNamespace(contended=False, no_core_ratio=None, own_ratio=None)] * 2,
        window_ns=own,
    )
    late = np.array([[0.0] * 3, [79.0, 81.0, 75.0]]) * MS
    over = excess(facts, SimpleNamespace(peer_of=members, late_ns=late[::-1]))
    assert over.more_work_ns.tolist() == [0, 42 * MS]
    assert over.mean_ns.tolist() == [0, 42 * MS]
    (straggler,) = lateness(facts, over).stragglers
    assert straggler.rank == 1


@pytest.mark.parametrize(("longest", "cost_ms"), [(1.3, 0.0), (27.0, 3.0)])  # of 9 whole steps
def test_ranks_that_differ_by_chance_cost_nothing(longest, cost_ms):
    """What each step loses to the noise between ranks no fix of a rank gives back."""
    extra = (1.0, 1.2, 0.9, 1.1, 1.3, 0.8, 1.0, 1.2, 1.1, longest)
    noisy = Job(
        ranks=2,
        steps=10,
        work_ms=lambda rank, step: 10.0 + extra[step] * (rank == step % 2),
    )
    job = job_of(noisy)
    assert job.late.stragglers == ()
    assert job.late.cost_ns == pytest.approx(cost_ms * 1e6, rel=0.05)
