from dataclasses import replace

import pytest

from builders import TraceBuilder
from exceptional_programs import now_and_then
from pinchpoint.diagnosis.engine import diagnose
from pinchpoint.report.assemble.report import diagnose as report
from pinchpoint.report.words.mean import mean_sentences
from pinchpoint.report.words.steps import base_ns
from pinchpoint.trace import RunFacts
from program import Program

MS = 1e6
MILLI = 1_000_000


@pytest.mark.parametrize(
    ("more", "cause", "saving_ms"),
    [
        ("checkpoint", "checkpoint-stall", 20),
        ("garbage", "python-gc", 20),
        ("compiler", "recompiles", 20),
        # The accounting gives 10 of the 100 ms to the synchronisation before; a quarter is doubt.
        ("python", "exceptional-steps", 0.875 * 18),
    ],
)
def test_the_rule_of_the_cause_speaks_about_the_mean(more, cause, saving_ms):
    (found,) = diagnose(now_and_then(more, (3, 8, 13), steps=16)).found
    assert found.id == cause
    assert found.predicted.base_ns == pytest.approx(30 * MS, rel=0.05)
    assert found.saving_ns == pytest.approx(saving_ms * MS, rel=0.05)


def test_names_the_place_the_time_and_how_often(outcome):
    (finding,) = outcome("exceptional-steps", now_and_then("python", (3, 8, 13), steps=16)).findings
    assert finding.summary == (
        "Every 5 steps one takes up to 100 ms more than usual: host runs Python in rebuild_index"
        " (prepare.py:3), 18.0 ms of the mean recorded step"
    )
    said = {fact.what: fact.value for fact in finding.evidence}
    assert said["mean step without it"] == pytest.approx(12 * MS, rel=0.01)  # 30 - 18
    assert said["their numbers"] == "3, 8, 13"


def test_evaluation_is_advised_to_come_less_often(outcome):
    (finding,) = outcome("exceptional-steps", now_and_then("evaluation", (5,))).findings
    assert "as in an evaluation in every_so_often (train.py:90)" in finding.summary
    assert finding.fix.startswith("Evaluate less often")
    least, most = finding.saving_ns_per_step
    assert 2 * least == pytest.approx(most, abs=2)


@pytest.mark.parametrize("after", [False, True])
def test_what_runs_after_the_last_step_is_not_where_that_one_lost_time(outcome, after):
    p = Program()
    for number in p.steps(11):
        p.kernel("gemm", 110_000 if number == 10 else 10_000)
        p.sync()
    if after:
        p.host("export.py(1): export", 200_000)
    (finding,) = outcome("exceptional-steps", p.trace()).findings
    assert "export" not in finding.summary


def test_slow_device_work_is_no_evaluation(outcome, ranked):
    trace = now_and_then("slow kernel", (5,))
    (finding,) = outcome("exceptional-steps", trace).findings
    assert "device work that usually takes less, mostly matrix products" in finding.summary
    assert "exceptional-steps" in ranked(trace)


def test_one_step_that_is_a_bit_longer_may_be_an_incident(outcome):
    p = Program()
    for number in p.steps(11):
        p.host("prepare.py(3): rebuild_index", 7_000 if number == 5 else 100)
        p.kernel("gemm", 10_000)
        p.sync()
    assert outcome("exceptional-steps", p.trace()).answer == "clear"


@pytest.mark.parametrize("more", ["checkpoint", "late batch", "compiler"])
def test_leaves_to_others_what_they_know(outcome, more):
    assert outcome("exceptional-steps", now_and_then(more, (4,))).answer == "clear"


def test_a_slow_beginning_is_no_finding(ranked):
    assert ranked(now_and_then("python", (0, 1))) == []


def test_steps_alike_are_clear(outcome):
    assert outcome("exceptional-steps", now_and_then("python", ())).answer == "clear"


def test_three_steps_are_not_checked(outcome):
    said = outcome("exceptional-steps", now_and_then("python", (2,), steps=4))
    assert said.answer == "not checked"
    assert said.why.startswith("3 complete steps do not show what comes every few steps")
    assert said.fits  # "nothing worth fixing" would say too much


def test_the_steps_that_the_run_timed_decide_what_three_recorded_ones_do_not(outcome):
    trace = now_and_then("python", (), steps=4)
    timed = RunFacts(unprofiled_step_ns=(10 * MILLI,) * 40)
    said = outcome("exceptional-steps", replace(trace, run=timed))
    assert said.answer in ("clear", "not checked")
    assert not said.fits


def test_a_run_that_is_slower_than_its_recording_is_not_checked(outcome):
    trace = now_and_then("python", ())
    slow = replace(trace, run=RunFacts(unprofiled_step_ns=(10_000_000,) * 9 + (110_000_000,)))
    said = outcome("exceptional-steps", slow)
    assert said.answer == "not checked"
    assert "what makes the difference was not recorded" in said.why
    (sentence,) = mean_sentences(report(slow))
    assert sentence.startswith("The run's mean is 20.0 ms, the recorded steps' 10.0 ms")


def test_the_document_and_its_sentence():
    said = report(now_and_then("python", (4,)))
    assert said.steps.mean_ns == pytest.approx(20 * MS, rel=0.01)
    (one,) = said.steps.exceptional
    assert (one.step, one.part, one.location.function) == (4, "idle-python", "rebuild_index")
    assert base_ns(said) == said.steps.base_ns == pytest.approx(20 * MS, rel=0.02)
    assert "But that is the typical step, and the mean one takes 20.0 ms" in said.verdict
    (sentence,) = mean_sentences(said)
    assert sentence == (
        "A typical step takes 10.0 ms without the profiler; one step of 110 ms adds 10.0 ms a step"
        " (host runs Python)"
    )


def test_the_function_that_only_these_steps_run_is_named_not_what_it_calls(outcome):
    p = Program()
    for number in p.steps(12):
        if number == 6:
            with p.frame("train.py(40): warm_up"):
                for _ in range(3):
                    with p.frame("model.py(7): forward"):
                        p.busy(30_000)
                    p.sync()
        with p.frame("model.py(7): forward"):
            p.busy(2_000)
        p.kernel("gemm", 8_000)
        p.sync()
    (finding,) = outcome("exceptional-steps", p.trace()).findings
    assert finding.location.function == "warm_up"


@pytest.mark.parametrize(
    ("timed", "more", "rows", "answer"),
    [
        pytest.param(True, 0, 8, "clear", id="the same operators, and the run was timed"),
        pytest.param(True, 20, 8, "found", id="more operators"),
        pytest.param(False, 0, 8, "not checked", id="nothing else is known of the run"),
        pytest.param(False, 20, 8, "found", id="more operators, whatever is known of the run"),
        pytest.param(False, 0, 48, "found", id="a larger batch"),
    ],
)
def test_a_single_step_whose_operators_took_longer_may_have_had_no_core(
    outcome, timed, more, rows, answer
):
    b, at = TraceBuilder(), 0
    for number in range(8):
        far = number == 4
        takes = 60 if far else 10
        b.step(number, at * MILLI, (takes + 2) * MILLI)
        shapes = f"[[{rows if far else 8}, 64], [64, 64]]"
        b.op("aten::mm", (at + 1) * MILLI, takes * MILLI, shapes=shapes)
        for extra in range(more if far else 0):
            b.op("aten::add", (at + 1) * MILLI + takes * MILLI + 1000 * (2 + extra), 900)
        at += takes + 2
    trace = replace(b.trace(api_calls=None, device_ops=None), devices=())
    run = RunFacts(unprofiled_step_ns=(12 * MILLI,) * 18 + (20 * MILLI,) * 2 + (90 * MILLI,))
    said = outcome("exceptional-steps", replace(trace, run=run) if timed else trace)
    assert said.answer == answer


@pytest.mark.parametrize(
    ("far", "place", "answer"),
    [
        pytest.param((4,), False, "not checked", id="once, and nothing says where"),
        pytest.param((2, 3), False, "not checked", id="twice, and nothing says where"),
        pytest.param((4,), True, "found", id="in a function that only this step runs"),
        pytest.param((3, 8, 13), False, "found", id="every five steps"),
    ],
)
def test_time_at_no_place_may_be_time_without_a_core(outcome, far, place, answer):
    """Nothing but Python's time grows, on a CPU that others may have: no exception of a program."""
    b, at = TraceBuilder(), 0
    for number in range(16):
        takes = 40 if number in far else 10
        b.step(number, at * MILLI, (takes + 12) * MILLI)
        b.op("aten::mm", (at + 1) * MILLI, 10 * MILLI)
        if place and number in far:
            b.python("prepare.py(3): rebuild", (at + 12) * MILLI, takes * MILLI)
        at += takes + 12
    trace = replace(b.trace(api_calls=None, device_ops=None), devices=())
    said = outcome("exceptional-steps", trace)
    assert said.answer == answer
    assert said.fits == (answer == "not checked")


@pytest.mark.parametrize(
    ("timed", "answer"),
    [
        pytest.param((10,) * 24 + (60,), "clear", id="seldom as long without the profiler"),
        pytest.param((10, 10, 10, 10, 60) * 8, "found", id="as often without the profiler"),
        pytest.param((), "found", id="nothing else is known of the run"),
    ],
)
def test_usual_work_that_is_slow_while_it_is_recorded_is_none(outcome, timed, answer):
    """One of eight steps dispatches the same operators, which take 50 ms more."""
    p = Program()
    for number in p.steps(9):
        for _ in range(10):
            with p.row("aten::linear"):
                p.busy(6_000 if number == 5 else 1_000)
                p.kernel("gemm", 100)
        p.sync()
    run = RunFacts(unprofiled_step_ns=tuple(ms * MILLI for ms in timed))
    assert outcome("exceptional-steps", replace(p.trace(), run=run)).answer == answer
