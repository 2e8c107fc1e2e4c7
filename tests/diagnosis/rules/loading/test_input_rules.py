"""Rules about what keeps a loader from having the batch ready."""

import math
from dataclasses import replace

import pytest

from builders import TraceBuilder
from loader_steps import loading
from pinchpoint.diagnosis.evidence.loading import loads
from pinchpoint.trace import LoaderWorker, RunFacts

LATE = [50.0] * 6
INPUT_RULES = ("decode-bound", "small-file-io", "collate-slow", "slow-transform")
DECODE = "PIL/ImageFile.py(200): load"
FILES = "numpy/lib/_npyio_impl.py(311): load"
COLLATE = "torch/utils/data/_utils/collate.py(340): default_collate"
TRANSFORM = "data.py(7): __getitem__"


@pytest.mark.parametrize(
    ("cause", "frame"),
    [("decode-bound", DECODE), ("small-file-io", FILES), ("collate-slow", COLLATE)],
)
def test_without_workers_the_frames_decide(outcome, ranked, cause, frame):
    work = [(frame, 0.7), (TRANSFORM, 0.3)]
    trace = loading(LATE, inside=work, batch=[32, 16], size=32 * 16 * 4)
    (finding,) = outcome(cause, trace).findings
    assert finding.cost_ns_per_step == pytest.approx(35e6, rel=0.01)
    assert finding.evidence[2].name == frame
    assert ranked(trace) == [cause]


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ("<built-in method decompress of zlib.Decompress object at 0x7f>", "inflates an archive"),
        ("<built-in method read of _io.BufferedReader object at 0x7f>", "reads 1 files a step"),
    ],
)
def test_an_archive_that_is_inflated_at_each_access_is_no_small_file(outcome, calls, said):
    trace = loading(LATE, inside=[(FILES, 0.7)], calls=calls)
    (finding,) = outcome("small-file-io", trace).findings
    assert said in finding.summary


def test_a_transform_on_the_training_thread_is_a_starved_loader(ranked):
    work = [(TRANSFORM, 0.6), (DECODE, 0.2), (FILES, 0.1)]
    assert ranked(loading(LATE, inside=work)) == ["dataloader-starved"]


@pytest.mark.parametrize(
    ("shape", "cause"),
    [([32, 3, 224, 224], "dataloader-starved"), ([32, 16], "collate-slow")],
)
def test_stacking_large_samples_is_a_copy_that_workers_can_do(ranked, shape, cause):
    size = 4 * math.prod(shape)
    trace = loading(LATE, inside=[(COLLATE, 0.7)], batch=shape, size=size)
    assert ranked(trace) == [cause]


@pytest.mark.parametrize(
    ("operators", "cause"), [(3, "dataloader-starved"), (2_048, "collate-slow")]
)
def test_a_tensor_for_each_number_of_a_sample_is_no_copy(outcome, ranked, operators, cause):
    shape = [32, 2_048]
    trace = loading(
        LATE, inside=[(COLLATE, 0.7)], batch=shape, size=4 * math.prod(shape), operators=operators
    )
    assert ranked(trace) == [cause]
    for finding in outcome("collate-slow", trace).findings:
        assert "not lists of numbers" in finding.fix


@pytest.mark.parametrize("cause", INPUT_RULES)
def test_what_workers_do_is_not_seen(outcome, cause):
    trace = loading(LATE, workers=8, batch=[32, 3, 224, 224], size=32 * 602_112)
    answer = outcome(cause, trace)
    assert answer.answer == "not checked"
    assert "py-spy" in answer.record


@pytest.mark.parametrize("cause", [*INPUT_RULES, "prefetch-shallow", "dataloader-starved"])
def test_is_quiet_where_batches_are_ready(outcome, cause):
    assert outcome(cause, loading([0.1] * 6, workers=2)).answer == "clear"
    assert outcome(cause, TraceBuilder().trace()).answer == "not checked"


def test_workers_that_finish_together_make_one_step_wait_for_a_round():
    rounds = [0.1] * 6 + [300.0] + [0.1] * 7 + [300.0] + [0.1] * 2
    assert loads(loading(rounds, workers=8)).starving
    assert not loads(loading(rounds, workers=4)).starving  # four rounds would have had time
    assert not loads(loading([0.1] * 15 + [300.0], workers=8)).starving  # an incident


def test_a_wait_of_a_hundredth_of_the_step_is_the_price_of_a_ready_batch():
    assert not loads(loading([1.4] * 6, workers=4, work_ms=120)).starving
    assert loads(loading([14.0] * 6, workers=4, work_ms=120)).starving


def test_less_than_two_rounds_tell_only_with_the_steps_of_the_run():
    few = loading([0.1] * 6 + [300.0] * 2, workers=8)
    assert not loads(few).starving
    run = RunFacts(unprofiled_step_ns=((2_000_000,) * 7 + (300_000_000,)) * 4)
    assert loads(replace(few, run=run)).starving


def test_thousands_of_tiny_rows_are_collated(outcome, ranked):
    trace = loading(LATE, workers=2, batch=[8192, 64], size=8192 * 256)
    (finding,) = outcome("collate-slow", trace).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["rows in a batch"] == 8192
    assert evidence["size of a row"] == 256
    assert evidence["time of who prepares it"] == pytest.approx(50e6 * 2 / 8192, rel=0.01)
    assert finding.confidence == "medium"
    assert ranked(trace) == ["collate-slow"]


@pytest.mark.parametrize(
    ("batch", "row_bytes", "wait_ms"),
    [
        ([256, 64], 256, 50),
        ([8192, 1024], 4096, 50),
        ([1024, 64], 256, 100),
        ([65536, 64], 256, 50),
    ],
    ids=["few rows", "larger rows", "slow rows", "gathered at once"],
)
def test_other_batches_may_be_anything(outcome, batch, row_bytes, wait_ms):
    trace = loading([wait_ms] * 6, workers=2, batch=batch, size=batch[0] * row_bytes)
    assert outcome("collate-slow", trace).answer in ("not checked", "clear")


def test_milliseconds_for_a_sample_are_a_slow_transform(outcome, ranked):
    trace = loading(LATE, workers=8, batch=[64, 192, 192], size=64 * 147_456)
    (finding,) = outcome("slow-transform", trace).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["worker processes"] == 8
    assert evidence["time of a worker"] == pytest.approx(50e6 * 8 / 64, rel=0.01)
    assert ranked(trace) == ["slow-transform"]


@pytest.mark.parametrize(("busy", "cause"), [(80, "slow-transform"), (2, "dataloader-starved")])
def test_workers_that_were_measured_to_be_idle_take_no_milliseconds_for_a_sample(
    ranked, busy, cause
):
    trace = loading(LATE, workers=8, batch=[64, 192, 192], size=64 * 147_456)
    run = RunFacts(cores_allowed=16.0, loader_workers=(LoaderWorker(8, busy, 100, 1),))
    assert ranked(replace(trace, run=run)) == [cause]


def test_two_workers_are_too_few_to_blame_the_transform(ranked):
    trace = loading([250.0] * 6, workers=2, batch=[64, 192, 192])
    assert ranked(trace) == ["dataloader-starved"]


def test_counts_workers_and_bytes():
    found = loads(loading(LATE, workers=4, batch=[16, 10], size=16 * 40))
    assert (found.workers, found.in_workers, found.starving) == (4, True, True)
    assert (found.samples, found.sample, found.sample_bytes) == (16, (10,), 40)


READY = [0.1] * 7


def test_waits_after_which_the_queue_fills_again(outcome):
    trace = loading([*READY, 40.0, *READY, 40.0, *READY, 40.0, *READY], workers=2)
    (finding,) = outcome("prefetch-shallow", trace).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["ready batches after a wait"] == 7
    assert evidence["depth of the queue"] == 4


def test_a_batch_that_took_far_longer_than_those_before_it(outcome, ranked):
    trace = loading([0.1] * 9 + [300.0], workers=2, work_ms=20)
    (finding,) = outcome("prefetch-shallow", trace).findings
    # Begun two steps of 20.3 ms before its turn: 340.6 ms; the others took at most 81.2.
    assert "a batch takes at least 4.2 × as long as those before it" in finding.summary
    assert finding.cost_ns_per_step == pytest.approx(300e6 / 9, rel=0.02)
    assert ranked(trace) == ["prefetch-shallow"]


def test_a_late_batch_that_need_not_have_been_slower_than_others_is_starvation(outcome, ranked):
    trace = loading([0.1] * 9 + [30.0], workers=2, work_ms=20)
    assert outcome("prefetch-shallow", trace).answer == "clear"
    assert ranked(trace) == ["dataloader-starved"]


def test_one_wait_for_each_round_of_workers_is_starvation(outcome):
    trace = loading([0.1, 40.0] * 8, workers=2)
    assert outcome("prefetch-shallow", trace).answer == "clear"
    assert outcome("dataloader-starved", trace).answer == "found"


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("c01_dataloader_starved", "dataloader-starved"),
        ("c02_slow_transform", "slow-transform"),
        ("c04_small_file_io", "dataloader-starved"),  # its workers are not in the recording
        ("c07_collate_slow", "collate-slow"),
        ("d01_decoy_item_in_starved_loop", "dataloader-starved"),
    ],
)
def test_labelled(labelled, name, cause):
    assert next(iter(labelled(f"{name}.slow"))) == cause
    assert cause not in labelled(f"{name}.fixed")


@pytest.mark.corpus
def test_a_healthy_loader(labelled):
    assert not labelled("h03_healthy_loader.healthy")
