"""Far steps of a run, one of which was recorded by itself."""

from dataclasses import replace

import pytest

from exceptional_programs import now_and_then
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.diagnosis.windows import diagnose
from pinchpoint.trace import RunFacts
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
