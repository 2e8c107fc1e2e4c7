from dataclasses import replace

import pytest

from builders import TraceBuilder, with_what_goes
from loader_steps import MS, RANGE, loading
from pinchpoint.diagnosis.engine import diagnose
from pinchpoint.trace import HostKind, RunFacts
from pinchpoint.trace.run_samples import SampledThread, Spent
from pinchpoint.trace.trace import LoaderWorker
from program import Program
from sampled_runs import samples

WAITS_MS, WORK_MS = [20.0] * 6, 2.0


@pytest.mark.parametrize(
    ("workers", "doing"), [(0, "prepares the batch itself"), (4, "waits for worker processes")]
)
def test_says_who_prepares_the_batch_and_what_waiting_costs(outcome, workers, doing):
    (finding,) = outcome("dataloader-starved", loading(WAITS_MS, workers=workers)).findings
    assert finding.summary == f"The training thread {doing}, 20.0 ms of each recorded step"
    assert finding.cost_ns_per_step == 20_000_000


def test_with_batches_in_time_the_device_decides(predicted):
    after = predicted(loading(WAITS_MS, workers=2, work_ms=WORK_MS), "dataloader-starved")
    assert after == pytest.approx(WORK_MS * 1e6, rel=0.3)


def test_one_wait_in_many_steps_is_an_incident(outcome):
    trace = loading([40.0, *[0.1] * 9], workers=4)
    assert outcome("dataloader-starved", trace).answer == "clear"


def test_one_long_wait_beyond_the_queue_counts_for_the_mean(outcome):
    (finding,) = outcome("dataloader-starved", loading([0.1] * 9 + [100.0], workers=2)).findings
    assert finding.cost_ns_per_step == pytest.approx(100e6 / 9, rel=0.05)
    assert finding.summary.startswith("Once in 9 steps a step takes 99.9 ms more than usual")


def test_a_queue_that_was_full_hides_whether_the_loader_keeps_up(outcome):
    said = outcome("dataloader-starved", loading([0.1] * 8, workers=4))
    assert said.answer == "not checked"
    assert "takes 8 batches, and as many as 8 may have been ready" in said.why
    assert said.record == "16 steps or more"
    assert outcome("dataloader-starved", loading([0.1] * 9, workers=4)).answer == "clear"


@pytest.mark.parametrize(
    ("wait_ms", "answer"),
    [
        pytest.param(100.0, "found", id="longer than eight steps of 2.3 ms"),
        pytest.param(15.0, "not checked", id="a full queue would have hidden it"),
    ],
)
def test_a_wait_that_no_full_queue_would_have_hidden(outcome, wait_ms, answer):
    """Of eight batches that may have been ready the last was not: how often, nobody knows."""
    said = outcome("dataloader-starved", loading([0.1] * 7 + [wait_ms], workers=4))
    assert said.answer == answer
    assert [f.confidence for f in said.findings] == ["low"] * len(said.findings)


def test_a_device_that_works_meanwhile_does_not_starve(ranked):
    p = Program()
    for _ in p.steps(8):
        p.host(RANGE.format("MultiProcessing"), 3_000, kind=HostKind.ANNOTATION)
        p.kernel("work", 40_000)
    assert ranked(p.trace()) == []


def test_a_read_in_a_starved_loop_is_harmless(ranked):
    p = Program()
    for _ in p.steps(8):
        p.host(RANGE.format("MultiProcessing"), 20_000, kind=HostKind.ANNOTATION)
        p.kernel("work", 4_000)
        p.read()
    assert ranked(p.trace()) == ["dataloader-starved"]


@pytest.mark.parametrize(("apart", "answer"), [(5, "found"), (4, "not checked")])
def test_two_waits_a_whole_round_apart_are_rounds(outcome, apart, answer):
    waits = [0.1, 60.0, *[0.1] * (apart - 1), 60.0, 0.1, 0.1, 0.1][:9]
    assert outcome("dataloader-starved", loading(waits, workers=5)).answer == answer


@pytest.mark.parametrize(("cores", "more"), [(2.0, False), (3.0, False), (8.0, True), (None, True)])
def test_more_workers_are_advised_only_where_the_cores_have_room(outcome, cores, more):
    run = RunFacts(cores_allowed=cores, loader_workers=(LoaderWorker(2, 9, 10, 1),))
    trace = replace(loading(WAITS_MS, workers=2), run=run)
    (finding,) = outcome("dataloader-starved", trace).findings
    assert (finding.hint is not None) is more
    assert ("there are 2 of them" in finding.fix) is not more
    assert ("num_workers" in finding.confirm) is more


@pytest.mark.parametrize(("others", "may_win_nothing"), [(1.7, True), (0.2, False)])
def test_a_worker_may_win_nothing_where_others_have_the_cores(others, may_win_nothing):
    """Two cores: with 1.7 of them used by others a worker takes its time from the program."""
    run = RunFacts(cores_allowed=2.0, cores_there=2, cores_of_others=others)
    trace = replace(loading(WAITS_MS, workers=0, work_ms=WORK_MS * 5), run=run)
    (first,) = [one for one in diagnose(trace).found if one.id == "dataloader-starved"]
    base, (least, most) = first.predicted.base_ns, first.predicted.range_ns
    assert (most >= base) is may_win_nothing
    assert least < base
    assert ("other programs have them" in first.finding.fix) is may_win_nothing


@pytest.mark.parametrize(("busy", "sent"), [(1, True), (80, False)])
def test_workers_that_hardly_work_are_waited_for_because_of_the_way(outcome, busy, sent):
    run = RunFacts(cores_allowed=8.0, loader_workers=(LoaderWorker(2, busy, 100, 1),))
    (finding,) = outcome(
        "dataloader-starved", replace(loading(WAITS_MS, workers=2), run=run)
    ).findings
    assert ("make batches in 1 % of their time" in finding.summary) is sent
    assert ("a few large tensors" in finding.fix) is sent
    assert ("num_workers" in finding.hint) is not sent


def sending(**known):
    """Steps of 10 ms on a CPU, 6 of them in next(), of a run that timed its own."""
    b = TraceBuilder()
    b.devices = []
    for step in range(6):
        at = step * 10 * MS
        b.step(step, at, 10 * MS)
        b.annotation(RANGE.format("MultiProcessing"), at + 1_000, 6 * MS)
        b.op("aten::mm", at + 6_100_000, 3 * MS)
    worker = LoaderWorker(1, 1, 100, 1, ("train.py", 50, "as_list"))
    run = RunFacts(loader_workers=(worker,), unprofiled_step_ns=(8 * MS,) * 5, **known)
    return replace(b.trace(), run=run)


def test_a_program_on_a_cpu_wins_what_its_run_timed_of_waits():
    first = diagnose(sending(data_wait_ns=(5 * MS,) * 5)).found[0]
    assert (first.id, str(first.finding.location)) == (
        "dataloader-starved",
        "as_list (train.py:50)",
    )
    # A ready batch takes 2 % of the wait.
    assert first.predicted.step_ns == pytest.approx(with_what_goes(8 * MS, 3.1 * MS))
    assert first.predicted.range_ns == (1.86 * MS, 8 * MS - 0.75 * 4.9 * MS)


def test_without_timed_waits_the_recorded_ones_are_replayed():
    first = diagnose(sending()).found[0]
    assert first.predicted.step_ns == pytest.approx(
        with_what_goes(8 * MS, 8 * MS - 8 / 10 * 0.98 * 6 * MS)
    )


@pytest.mark.parametrize(("busy", "timed_ms"), [(1, None), (30, None), (1, 0.1)])
def test_a_thread_that_takes_many_tensors_in_is_named_and_wins_more(outcome, busy, timed_ms):
    """Workers idle, and so no worker is proposed; the copies of the small tensors go with them.

    That the waits which the run timed are short, as those are that follow a stall, changes nothing.
    """
    trace = loading(WAITS_MS, workers=2)
    waits = () if timed_ms is None else (round(timed_ms * MS),) * 5
    worker = LoaderWorker(2, busy, 100, 1)
    run = RunFacts(cores_allowed=8.0, loader_workers=(worker,), data_wait_ns=waits)
    loop = (
        "torch/multiprocessing/reductions.py(540): rebuild_storage_fd",
        "torch/utils/data/_utils/pin_memory.py(52): _pin_memory_loop",
    )
    thread = SampledThread("Thread-1", False, 100, 1, (), (Spent(loop, "", 100, 10**6, 10**6, 0),))
    run = replace(run, samples=replace(samples(every=0), threads=(thread,)))
    (finding,) = outcome("dataloader-starved", replace(trace, run=run)).findings
    assert "thread Thread-1 takes the tensors of a batch from them one by one" in finding.summary
    assert "100 % of its time" in finding.summary
    assert finding.at_best == ()  # what is advised is what is said
    assert "num_workers" not in finding.hint
