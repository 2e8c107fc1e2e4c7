"""What one rank of several cannot tell."""

import pytest
from msgspec.structs import replace

from host_ranks import stages_of_hosts, traces_of_hosts
from pinchpoint.analysis.ranks.job import reduce
from pinchpoint.analysis.ranks.summarise import summarise
from pinchpoint.analysis.ranks.summary import FirstInput, RankPlace, pack
from pinchpoint.diagnosis.job import diagnose_job
from pinchpoint.diagnosis.rank_finding import RankFinding
from program import Program
from rank_traces import MS, Job


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


@pytest.mark.parametrize(
    ("no_core", "own", "answer"),
    [
        pytest.param((0.01, 0.01), (0.4, 0.4), "found", id="cores enough"),
        pytest.param((0.4, 0.4), (0.45, 0.46), "not checked", id="in turns, the same work"),
        pytest.param((0.4, 0.4), (0.3, 0.6), "found", id="in turns, and more of its own"),
        pytest.param((None, None), (None, None), "found", id="nothing known of cores"),
    ],
)
def test_ranks_that_take_each_others_cores_are_late_in_turns(no_core, own, answer):
    """Rank 1 is late by a third of each step; half of it has to be told by what it did itself."""
    job = Job(steps=6, stall_ms=lambda rank, step: 5.0 * rank)
    summaries = [
        replace(summarise(trace), no_core_ratio=waited, own_ratio=did)
        for trace, waited, did in zip(job.traces(), no_core, own, strict=True)
    ]
    said = diagnose_job(reduce(lambda: iter(summaries)), [])
    (straggler,) = (o for o in said.outcomes if o.id == "straggler-rank")
    assert straggler.answer == answer
    if answer == "not checked":
        assert straggler.why.startswith("the ranks waited for a core, one for 40 % of the time")


@pytest.mark.parametrize(
    ("lengths", "answer"),
    [
        pytest.param(((100, 120), (200, 300)), "found", id="more in each step"),
        pytest.param(((100, 250), (200, 240)), "not checked", id="more in the mean only"),
        pytest.param(((100, 100), (100, 100)), "not checked", id="the same"),
    ],
)
def test_what_a_rank_is_given_no_other_program_changes(lengths, answer):
    job = Job(steps=6, stall_ms=lambda rank, step: 5.0 * rank)
    summaries = [
        replace(
            summarise(t),
            contended=True,
            inputs=(
                FirstInput(
                    operator="aten::add",
                    call=0,
                    dims=(sum(mine) / 2,),
                    elements=pack(list(mine)),
                    file="data.py",
                    line=7,
                    function="collate",
                ),
            ),
        )
        for t, mine in zip(job.traces(), lengths, strict=True)
    ]
    said = diagnose_job(reduce(lambda: iter(summaries)), [])
    (straggler,) = (o for o in said.outcomes if o.id == "straggler-rank")
    assert straggler.answer == answer
    if answer == "found":
        (found,) = straggler.findings
        assert found.summary.startswith("Rank 1 comes last, with batches 2.27 times as long")
        assert found.cost_ns_per_step == pytest.approx(2.5e6, rel=0.02)  # 5 ms of one of two


@pytest.mark.parametrize(
    ("spans_ms", "answer"),
    [
        pytest.param(
            ((0.0, 0.0, 3.0), (6.0, 9.0, 13.0)), "found", id="one sleeps, the other never"
        ),
        pytest.param(((4.0, 6.0, 8.0), (7.0, 9.0, 13.0)), "not checked", id="bounds that touch"),
    ],
)
def test_where_others_took_the_cores_looks_tell_who_does_more(spans_ms, answer):
    job = Job(steps=6, stall_ms=lambda rank, step: 5.0 * rank)
    summaries = [
        replace(summarise(trace), contended=True, places=_asleep(*spans))
        for trace, spans in zip(job.traces(), spans_ms, strict=False)
    ]
    said = diagnose_job(reduce(lambda: iter(summaries)), [])
    (straggler,) = (o for o in said.outcomes if o.id == "straggler-rank")
    assert straggler.answer == answer
    if answer == "found":
        (found,) = straggler.findings
        assert found.summary.startswith(
            "Rank 1 spends 9.00 ms of a step in prepare (train.py:3) at time.sleep(), its peers"
        )
        assert found.location.function == "prepare"


def test_a_rank_that_does_more_of_what_its_peers_do_too_is_told_by_what_it_is_given():
    job = Job(steps=6, stall_ms=lambda rank, step: 5.0 * rank)
    summaries = [
        replace(
            summarise(trace),
            contended=True,
            places=_asleep(*spans),
            own_ratio=own,
            inputs=(_given(length),),
        )
        for trace, spans, length, own in zip(
            job.traces(),
            ((0.5, 1.0, 1.5), (6.0, 9.0, 13.0)),
            (20, 60),
            (0.3, 0.5),
            strict=True,
        )
    ]
    said = diagnose_job(reduce(lambda: iter(summaries)), [])
    (straggler,) = (o for o in said.outcomes if o.id == "straggler-rank")
    (found,) = straggler.findings
    assert "with batches 3.00 times as long as its peers'" in found.summary
    assert found.location.function == "collate"


def test_what_a_late_rank_takes_includes_its_waits_for_a_core():
    """5 ms on a core are 9 by the clock, where others have nearly half of it; its peers wait."""
    place = replace(_asleep(4.0, 5.0, 6.0)[1], there_ns=9 * MS, least_there_ns=8 * MS)
    other = _asleep(0, 0, 0)[0]
    told = [(other,), (other, place)]
    summaries = [
        replace(summarise(trace), contended=True, places=places)
        for trace, places in zip(traces_of_hosts(1, 12), told, strict=True)
    ]
    said = diagnose_job(reduce(lambda: iter(summaries)), [])
    (straggler,) = (o for o in said.outcomes if o.id == "straggler-rank")
    (found,) = straggler.findings
    assert found.summary.startswith("Rank 1 spends 5.00 ms of a step in prepare")
    assert found.saving_ns_per_step == (8 * MS, 9 * MS)


def _stages(*, reduces=False):
    """Two stages, the second of which has more to do, on cores that others have most of."""
    told = [(_asleep(0, 0, 0)[0],), (_asleep(0, 0, 0)[0], _asleep(20.0, 24.0, 28.0)[1])]
    traces = traces_of_hosts(10, 34) if reduces else stages_of_hosts(first_ms=36, second_ms=60)
    summaries = [
        replace(summarise(trace), contended=True, places=places, own_ratio=own)
        for trace, places, own in zip(traces, told, (0.3, 0.6), strict=True)
    ]
    said = diagnose_job(reduce(lambda: iter(summaries)), [])
    (straggler,) = (o for o in said.outcomes if o.id == "straggler-rank")
    (found,) = straggler.findings
    return found


def test_a_stage_that_has_more_to_do_shares_it_out():
    found = _stages()
    assert "rank 0 30 %, rank 1 60 % of the run" in found.fix
    assert "give layers of rank 1 to the others" in found.fix
    assert found.likely_saving_ns == round(found.cost_ns_per_step / 2)  # the rest is the other's


def test_ranks_that_meet_in_reductions_are_no_stages():
    found = _stages(reduces=True)
    assert "pipeline" not in found.fix
    assert found.likely_saving_ns == found.cost_ns_per_step


def test_few_recorded_steps_do_not_say_how_long_ranks_wait():
    """Rank 0 is asleep for half of the run, and rank 1 is never: shared out, a quarter is won."""
    summaries = [
        replace(
            summarise(trace),
            contended=True,
            own_ratio=own,
            no_core_ratio=1.0 - own - asleep,
            inputs=(_given(length),),
        )
        for trace, own, asleep, length in zip(
            traces_of_hosts(10, 11), (0.2, 0.6), (0.5, 0.0), (20, 60), strict=True
        )
    ]
    said = diagnose_job(reduce(lambda: iter(summaries)), [])
    (straggler,) = (o for o in said.outcomes if o.id == "straggler-rank")
    (found,) = straggler.findings
    assert found.saving_ns_per_step[1] == pytest.approx(0.25 * 13 * MS, rel=0.02)


def test_what_one_late_rank_does_is_told_once():
    job = Job(steps=6, stall_ms=lambda rank, step: 5.0 * rank)
    summaries = [
        replace(summarise(trace), contended=True, places=_asleep(*spans))
        for trace, spans in zip(job.traces(), ((0, 0, 3), (6.0, 9.0, 13.0)), strict=False)
    ]
    (late,) = diagnose_job(reduce(lambda: iter(summaries)), []).found
    of_rank = RankFinding("host-hotspot", 1, 2_000_000, "prepare train.py")
    (found,) = diagnose_job(reduce(lambda: iter(summaries)), [of_rank]).found
    assert found.id == late.id == "straggler-rank"
    assert found.saving_ns == (late.saving_ns + 2_000_000) // 2
    elsewhere = RankFinding("host-hotspot", 1, 2_000_000, "other train.py")
    both = diagnose_job(reduce(lambda: iter(summaries)), [elsewhere]).found
    assert [one.id for one in both] == ["straggler-rank", "host-hotspot"]


def _given(length):
    return FirstInput(
        operator="aten::embedding",
        call=0,
        dims=(8, length),
        elements=pack([8 * length] * 4),
        file="data.py",
        line=7,
        function="collate",
    )


def _asleep(least, usual, most):
    other = RankPlace(file="train.py", function="f", least_ns=0, ns=1, most_ns=2, none_ns=3_000_000)
    if not usual:
        return (other,)
    ns = {"least_ns": least * 1e6, "ns": usual * 1e6, "most_ns": most * 1e6}
    ns = {name: round(value) for name, value in ns.items()}
    where = {"file": "train.py", "function": "prepare", "line": 3, "doing": "time.sleep()"}
    return (other, RankPlace(**where, **ns, none_ns=3_000_000))


@pytest.mark.parametrize(
    ("slower", "answer"),
    [
        pytest.param(1.07, "not checked", id="as devices of one kind differ"),
        pytest.param(1.3, "found", id="slower than that"),
    ],
)
def test_devices_of_one_kind_differ(slower, answer):
    job = Job(ranks=2, work_ms=lambda rank, step: 10.0 * (slower if rank else 1))
    summaries = [summarise(trace) for trace in job.traces()]
    said = diagnose_job(reduce(lambda: iter(summaries)), [])
    (straggler,) = (o for o in said.outcomes if o.id == "straggler-rank")
    assert straggler.answer == answer
    assert ("1.07" in (straggler.why or "")) == (answer == "not checked")
