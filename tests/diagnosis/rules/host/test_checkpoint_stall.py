from dataclasses import replace

import pytest

from pinchpoint.diagnosis.engine import diagnose
from pinchpoint.trace import RunFacts
from program import Program

SAVE = "torch/serialization.py(967): save"


def saving(name, *, every=4):
    """Steps with a kernel of 2 ms; each ``every``-th spends 40 ms in a call."""
    p = Program()
    for i in p.steps(9):
        p.kernel("work", 2_000)
        if i % every == 0:
            p.sync()
            with p.frame("train.py(90): save_state"):
                p.host(name, 40_000)
        p.busy(100)
    return p.trace()


def test_spreads_the_save_over_the_steps(outcome):
    (finding,) = outcome("checkpoint-stall", saving(SAVE)).findings
    assert finding.cost_ns_per_step == 2 * 40_000_000 // 8  # in two of the eight judged steps
    assert finding.location.function == "save_state"
    assert {e.what: e.value for e in finding.evidence}["times"] == 0.25


def test_says_how_often(outcome):
    (finding,) = outcome("checkpoint-stall", saving(SAVE)).findings
    assert "every 4 steps, for 10.0 ms of the mean recorded step" in finding.summary


def test_once_is_no_frequency(outcome):
    (finding,) = outcome("checkpoint-stall", saving(SAVE, every=7)).findings
    assert "once in the 8 judged steps (where it is rarer, it costs less)" in finding.summary


def test_how_often_it_comes_is_told_by_the_steps_timed_in_the_same_run():
    timed = (2_100_000,) * 99 + (42_100_000,)  # a save every hundred steps
    (found,) = diagnose(replace(saving(SAVE), run=RunFacts(unprofiled_step_ns=timed))).found
    assert found.predicted.base_ns == pytest.approx(2.5e6)
    assert found.saving_ns == pytest.approx(0.4e6, rel=0.1)


def test_the_mean_step_is_predicted_without_it(gain):
    assert gain(saving(SAVE), "checkpoint-stall") == pytest.approx(10e6, rel=0.1)


@pytest.mark.parametrize(
    "name",
    ["<built-in function collect>", "evaluate.py(5): evaluate", "data.py(9): <listcomp>"],
    ids=["garbage", "evaluation", "own code"],
)
def test_other_long_calls_are_no_save(outcome, name):
    assert outcome("checkpoint-stall", saving(name)).answer == "clear"
