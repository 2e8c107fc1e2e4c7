"""What rules say because the whole run was sampled."""

from dataclasses import replace

import pytest

from loader_steps import loading
from pinchpoint.trace import HostKind
from pinchpoint.trace.run_samples import SampledWorker
from pinchpoint.trace.run_values import RunValues, TriedAt
from pinchpoint.trace.trace import LoaderWorker
from program import Program
from sampled_runs import (
    COUNTING,
    EVALUATING,
    MS,
    PINNING,
    SAVING,
    SLEEPING,
    TRAINING,
    UNPICKLING,
    sampled,
    samples,
)


def test_a_save_between_the_windows_is_told_with_line_and_rhythm(outcome, ranked):
    trace = sampled(samples(SAVING))
    (finding,) = outcome("checkpoint-stall", trace).findings
    assert finding.summary == (
        "Every 5 steps one takes 504 ms instead of 27.0 ms: save (train.py:88), in torch.save"
    )
    assert finding.cost_ns_per_step == pytest.approx(477 * MS / 5)
    assert finding.location.line == 88
    assert finding.confidence == "high"
    assert ranked(trace) == ["checkpoint-stall"]


@pytest.mark.parametrize(
    ("found", "id_", "says"),
    [
        (samples(EVALUATING), "exceptional-steps", "evaluate (train.py:40)"),
        (samples(TRAINING, gc_ns=450 * MS), "python-gc", "garbage is collected"),
        (samples(TRAINING, wait_ns=450 * MS), "dataloader-starved", "it waits for its batch"),
    ],
)
def test_each_kind_is_told_by_its_rule(outcome, ranked, found, id_, says):
    trace = sampled(found)
    (finding,) = outcome(id_, trace).findings
    assert says in finding.summary
    assert ranked(trace) == [id_]


def tried(place, left=0.25):
    """Far steps in ``evaluate``, where another way was tried at a place."""
    trace = sampled(samples(EVALUATING))
    rare = (TriedAt(place, "aten::_linalg_svd", "svd-of-symmetric", 40 * MS, left),)
    return replace(
        trace, run=replace(trace.run, values=RunValues(9, 1, True, (), (), 0, rare=rare))
    )


def test_a_way_that_was_tried_in_them_is_why(outcome):
    (finding,) = outcome("exceptional-steps", tried(("train.py", 38, "evaluate"))).findings
    assert finding.summary == (
        "Every 5 steps one takes 504 ms instead of 27.0 ms: evaluate (train.py:40), where"
        " aten::_linalg_svd decomposes matrices that are symmetric as any others: another way gave"
        " the same in 10.0 ms where it took 40.0 ms, tried in this run"
    )
    assert "eigh" in finding.hint
    assert finding.likely_saving_ns == pytest.approx(0.75 * 477 * MS / 5)


def test_a_way_that_was_tried_elsewhere_is_not(outcome):
    for place in (("train.py", 88, "save"), ("other.py", 38, "evaluate")):
        (finding,) = outcome("exceptional-steps", tried(place)).findings
        assert "svd" not in finding.summary


def test_a_collection_that_the_program_calls_for_has_its_place_and_is_to_be_taken_out(outcome):
    called = ("train.py(70): tidy", "train.py(12): main")
    found = samples(TRAINING, gc_ns=450 * MS, gc_called_at=called)
    (finding,) = outcome("python-gc", sampled(found)).findings
    assert (finding.location.function, finding.location.line) == ("tidy", 70)
    assert finding.fix.startswith("Take the program's own gc.collect() out of the loop")
    assert (finding.hint, "--knob" in finding.confirm) == (None, False)
    (itself,) = outcome("python-gc", sampled(samples(TRAINING, gc_ns=450 * MS))).findings
    assert "gc.freeze()" in itself.fix


@pytest.mark.parametrize(
    "found",
    [samples(SAVING, every=50, far_ms=30), samples(EVALUATING, queued_ratio=0.95)],
    ids=["too small", "no core"],
)
def test_what_is_not_worth_it_or_not_the_programs_is_not_told(ranked, found):
    assert ranked(sampled(found)) == []


def stalled(stalls=4, stall_us=5_100):
    """Steps whose operators stand still now and then, without a thread to blame in the trace."""
    p = Program()
    for _ in p.steps(6):
        for _ in range(stalls):
            p.host("aten::add", stall_us, kind=HostKind.OPERATOR)
            p.kernel("elementwise", 20_000)
    return p.trace()


REBUILDING = "torch/multiprocessing/reductions.py(540): rebuild_storage_fd"
HELD = 5 * MS  # by which a look comes late while a thread runs Python


def test_turns_shorter_than_a_switch_interval_count_where_the_thread_is_seen(outcome):
    """Eight operators of 2 ms among hundreds of 20 µs: that thread works 2 ms and sleeps."""
    p = Program()
    for _ in p.steps(6):
        for number in range(200):
            p.host("aten::add", 2_000 if number % 25 == 0 else 20, kind=HostKind.OPERATOR)
        p.kernel("elementwise", 100)
    found = samples(every=0, beside=COUNTING, late_ns=MS)
    assert outcome("gil-contention", sampled(found, p.trace())).answer == "found"
    assert outcome("gil-contention", p.trace()).answer == "clear"


@pytest.mark.parametrize(
    ("found", "named"),
    [
        (samples(every=0, beside=COUNTING, late_ns=HELD), True),
        (samples(every=0, beside=SLEEPING, late_ns=HELD), False),
        (samples(every=0, beside=COUNTING, late_ns=MS // 10), False),
        (samples(every=0, beside=COUNTING, late_ns=HELD, beside_cpu_ratio=0.1), False),
        (samples(every=0, beside=PINNING, late_ns=HELD), False),
    ],
    ids=["runs Python", "waits", "gives the lock away", "hardly runs", "copies without the lock"],
)
def test_the_thread_that_holds_the_lock_is_named(outcome, found, named):
    answer = outcome("gil-contention", sampled(found, stalled()))
    assert (answer.answer == "found") is named
    if named:
        assert "thread tokens in count_words (words.py:8)" in answer.findings[0].summary
        assert answer.findings[0].location.line == 8


def test_a_loaders_thread_that_takes_batches_apart_holds_the_lock(outcome):
    found = samples(every=0, beside=UNPICKLING, late_ns=HELD)
    (finding,) = outcome("gil-contention", sampled(found, stalled())).findings
    assert "collate_fn" in finding.fix


def test_a_loaders_thread_that_rebuilds_tensors_much_of_the_time_gives_the_lock_up_between(outcome):
    receiving = ("multiprocessing/connection.py(395): _recv", REBUILDING, *UNPICKLING[1:])
    seldom_late = samples(every=0, beside=receiving, late_ns=MS // 10)
    (finding,) = outcome("gil-contention", sampled(seldom_late, stalled())).findings
    assert "collate_fn" in finding.fix
    whole = samples(every=0, beside=UNPICKLING, late_ns=MS // 10)
    assert outcome("gil-contention", sampled(whole, stalled())).answer == "clear"


def test_a_thread_that_polls_a_queue_is_where_the_program_asks(outcome):
    polling = ("threading.py(272): __enter__", "queue.py(165): get", "console.py(25): receive")
    found = samples(every=0, beside=polling, late_ns=HELD)
    (finding,) = outcome("gil-contention", sampled(found, stalled())).findings
    assert "in receive (console.py:25)" in finding.summary
    assert "wait for what it asks for" in finding.fix


def worker(*frames, looks=40):
    return SampledWorker(0, looks, ((frames, looks),))


AUGMENT = ("data.py(40): augment", "torch/utils/data/_utils/fetch.py(54): fetch")
DECODE = (
    "PIL/ImageFile.py(300): load",
    "data.py(20): __getitem__",
    "torch/utils/data/_utils/fetch.py(54): fetch",
)


@pytest.mark.parametrize(
    ("frames", "id_", "place"),
    [(AUGMENT, "slow-transform", "augment"), (DECODE, "decode-bound", "__getitem__")],
)
def test_what_workers_do_names_the_cause_of_waiting(outcome, frames, id_, place):
    trace = loading([30.0] * 8, workers=4, batch=[16, 3, 64, 64])
    trace = sampled(samples(every=0, workers=(worker(*frames),)), trace)
    (finding,) = outcome(id_, trace).findings
    assert finding.location.function == place
    (parent,) = outcome("dataloader-starved", trace).findings
    assert f"mostly in {place}" in parent.summary


def test_workers_that_were_seen_at_other_work_are_cleared(outcome):
    trace = loading([30.0] * 8, workers=4, batch=[16, 3, 64, 64])
    trace = sampled(samples(every=0, workers=(worker(*AUGMENT),)), trace)
    assert outcome("decode-bound", trace).answer == "clear"
    assert outcome("small-file-io", trace).answer == "clear"


def test_looks_that_had_no_core_themselves_tell_of_no_lock(outcome):
    """They came as late as they waited for a core, as any thread does on a full machine."""
    found = samples(every=0, beside=COUNTING, late_ns=HELD)
    queued = replace(found, looker_queued_ns=HELD * found.looks)
    assert outcome("gil-contention", sampled(queued, stalled())).answer == "clear"


STREAM = (
    "data.py(20): unpack",
    "data.py(30): __iter__",
    "torch/utils/data/_utils/fetch.py(33): fetch",
)


def streaming(workers):
    """Every fifth step waits 450 ms for workers that each run the whole iterator."""
    trace = sampled(samples(TRAINING, wait_ns=450 * MS, workers=(worker(*STREAM),)))
    noted = tuple(LoaderWorker(workers=workers) for _ in range(workers))
    return replace(trace, run=replace(trace.run, loader_workers=noted))


def test_steps_that_find_their_batches_ready_wait_for_none(outcome):
    waits_ns = 450 * MS // 5
    (found,) = outcome("dataloader-starved", streaming(2)).findings
    assert found.likely_saving_ns == pytest.approx(waits_ns)
    assert found.saving_ns_per_step[0] == pytest.approx(0.75 * waits_ns)
    assert found.saving_ns_per_step[1] > 1.05 * waits_ns  # busy workers cost the others, too


def test_growth_by_waits_goes_with_them(outcome, monkeypatch):
    import pinchpoint.diagnosis.evidence.ready_batches as ready

    monkeypatch.setattr(ready, "growth", lambda trace: object())
    monkeypatch.setattr(ready, "grows_by_waits", lambda trace, found: True)
    monkeypatch.setattr(ready, "grown_ns", lambda trace: 20 * MS)
    won = ready.won_if_ready(streaming(2), 40 * MS)
    assert won.range_ns[0] == 45 * MS
    assert won.likely_ns == 60 * MS
