"""Far steps of a run, one of which was recorded by itself."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from exceptional_programs import now_and_then
from pinchpoint.analysis.mean.rare_steps import rare_causes
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.diagnosis.windows import diagnose
from pinchpoint.report.assemble.report import diagnose as report
from pinchpoint.report.words.mean import mean_sentences
from pinchpoint.trace import MemoryKind, RunFacts
from program import Program
from sampled_runs import EVALUATING, samples

MS = 1e6


def with_a_far_step(function="evaluate"):
    """Steps of 10 ms that the device bounds; the last but one reads 400 numbers one by one."""
    p = Program()
    for number in p.steps(8):
        with p.row("aten::mm"):
            p.kernel("gemm", 10_000)
        if number == 6:
            with p.frame(f"train.py(40): {function}"):
                for _ in range(400):
                    with p.row("aten::mm"):
                        p.kernel("gemm", 100)
                        p.busy(10)
                    p.read()
                    p.busy(90)
        p.sync()
    return p.trace()


def run(rare, **how):
    trace = now_and_then("checkpoint", ())  # steps of 10 ms, nothing to change in them
    found = samples(EVALUATING, usual_ms=10, far_ms=100, every=10, **how)
    return replace(trace, run=RunFacts(samples=found, rare=rare))


def in_far_steps(trace):
    return [r for r in diagnose(trace).found if r.finding.summary.startswith("In the steps of")]


def test_the_cause_of_a_recorded_far_step_counts_as_often_as_such_steps_come():
    trace = run(with_a_far_step())
    (one,) = in_far_steps(trace)
    assert one.id == "sync-in-loop"
    assert "of 100 ms that come every 10: the host reads" in one.finding.summary
    # Of 400 turns of 0.2 ms half is left where the host runs ahead, and 10 ms of the usual step:
    # 40 of 90 ms, each tenth step.
    assert one.saving_ns == pytest.approx(40 / 90 * 10 * MS, rel=0.15)
    assert one.predicted.base_ns == step_base_ns(trace) == pytest.approx(19 * MS, rel=0.05)


@pytest.mark.parametrize(
    "trace",
    [
        run(None),
        run(with_a_far_step("another")),  # not the place that the run's far steps were seen at
        run(with_a_far_step(), queued_ratio=0.9),  # they had no core
        run(now_and_then("checkpoint", ())),  # none was recorded after all
    ],
    ids=["not recorded", "another place", "no core", "no far step"],
)
def test_what_is_no_recording_of_them_tells_nothing(trace):
    assert in_far_steps(trace) == []


class Bare(Program):
    """As the window of times is recorded: without Python's functions."""

    def frame(self, name, **more):
        return nullcontext()


def saving(far_us=400_000):
    """Steps of 10 ms; the last but one copies 1.6 GB to new memory of the host, at 4 GB/s."""
    p = Bare()
    for number in p.steps(8):
        with p.row("aten::mm"):
            p.kernel("gemm", 10_000)
        if number == 6:
            for _ in range(8):
                with p.row("aten::to"), p.row("aten::copy_"):
                    source, target = MemoryKind.DEVICE, MemoryKind.PAGEABLE
                    p.copy(200_000_000, far_us / 8, source, target, waits=True)
        p.sync()
    return p.trace()


def among_usual_steps(window, **how):
    """The far step is in the window of times itself, which shows no functions of the program."""
    found = samples(("train.py(40): store",), usual_ms=10, far_ms=410, every=10, **how)
    timed = (9_900_000, 10_100_000) * 9 + (410_000_000,) * 2
    return replace(window, run=RunFacts(samples=found, unprofiled_step_ns=timed))


def test_a_far_step_in_the_window_of_times_has_its_cause_in_place_of_its_place_alone():
    trace = among_usual_steps(saving())
    (one,) = diagnose(trace).found
    assert one.id == "large-d2h-copies"
    assert one.finding.summary.startswith(
        "In the steps of 410 ms that come every 10: 1.6 GB a step are copied to the host"
    )
    assert "ordinary memory takes 4.0 GB/s, pinned memory up to 50" in one.finding.summary
    assert str(one.finding.location) == "store (train.py:40)"
    # 400 ms each tenth step, of which 32 are left at 50 GB/s, or none: without both it is 10 ms.
    assert step_base_ns(trace) == pytest.approx(50 * MS, rel=0.02)
    assert one.predicted.step_ns == pytest.approx(11.5 * MS, rel=0.1)
    low, high = one.predicted.range_ns
    assert low <= 10.1 * MS < 13 * MS <= high
    (told,) = (o for o in diagnose(trace).outcomes if o.id == "exceptional-steps")
    assert (told.answer, told.covered_by) == ("covered", ("large-d2h-copies",))


def test_a_far_step_is_far_from_the_median_of_timed_steps_and_not_from_their_mean():
    (cause, *_) = rare_causes(among_usual_steps(saving()))
    assert cause.step_ns == pytest.approx(10 * MS, rel=0.02)  # the mean of those timed is 50
    assert cause.ns_per_step == pytest.approx(40 * MS, rel=0.02)


def test_the_typical_step_is_said_without_the_far_ones_that_were_timed():
    said = report(among_usual_steps(saving()))
    assert said.steps.unprofiled_ns_predicted == pytest.approx(10 * MS, rel=0.02)
    low, high = said.steps.base_range_ns
    assert 30 * MS < low < 50 * MS < high < 70 * MS  # ten far steps, or as many as 13, or 7
    (typical,) = (text for text in mean_sentences(said) if text.startswith("A typical step"))
    assert typical == (
        "A typical step takes 10.0 ms without the profiler; among the 7 complete recorded ones is"
        " one of 410 ms (copy device to host, not overlapped), which is more often than in the run"
    )
    assert "recorded steps are quicker" not in said.verdict


@pytest.mark.parametrize(
    "trace",
    [
        among_usual_steps(saving(far_us=80_000)),  # a far step, yet none of these
        among_usual_steps(saving(), gc_ns=300_000_000),  # collecting garbage made them long
        among_usual_steps(now_and_then("checkpoint", ())),
    ],
    ids=["shorter ones", "another cause", "no far step"],
)
def test_a_far_step_without_functions_is_of_the_cause_only_if_it_is_like_it(trace):
    assert in_far_steps(trace) == []
