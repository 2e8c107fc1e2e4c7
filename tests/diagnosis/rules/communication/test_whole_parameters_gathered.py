import pytest

from builders import TraceBuilder
from pinchpoint.trace import HostKind

MS = 1_000_000
FULL = "torch/distributed/tensor/_api.py(748): full_tensor"
STATE = "torch/distributed/checkpoint/state_dict.py(1109): get_model_state_dict"


def training(call=FULL, *, each=4, every=1, in_module=False):
    """Steps of 100 ms: 40 of passes, and ``each`` gathers of 5 ms in a function of 30."""
    b = TraceBuilder(devices=[])
    for step in range(6):
        at = step * 100 * MS
        b.step(step, at, 100 * MS)
        b.op("aten::mm", at + MS, 40 * MS)
        if step % every:
            continue
        b.python("train.py(53): update", at + 50 * MS, 30 * MS)
        if in_module:
            b.op("nn.Module: Linear_0", at + 51 * MS, 28 * MS, kind=HostKind.MODULE)
        for one in range(each):
            b.python(call, at + (52 + 6 * one) * MS, 5 * MS)
            b.op("Redistribute", at + (53 + 6 * one) * MS, 4 * MS)
    return b.trace()


def test_tensors_that_are_put_together_in_each_step(outcome, predicted):
    (found,) = outcome("whole-parameters-gathered", training()).findings
    assert found.cost_ns_per_step == 20 * MS
    assert found.location.function == "update"
    assert "by full_tensor in update (train.py:53), 4 × a step, for 20.0 ms" in found.summary
    assert predicted(training(), "whole-parameters-gathered") == pytest.approx(80 * MS, rel=0.05)


def test_one_whole_state_a_step_is_enough(outcome):
    (found,) = outcome("whole-parameters-gathered", training(STATE, each=1)).findings
    assert found.cost_ns_per_step == 5 * MS


@pytest.mark.parametrize(
    "trace",
    [
        training(each=1),
        training(every=3),
        training(in_module=True),
        training("train.py(9): full_tensor"),
    ],
    ids=["a loss", "a checkpoint", "a layer's output", "a function of the program"],
)
def test_it_stays_quiet(outcome, trace):
    assert outcome("whole-parameters-gathered", trace).answer == "clear"
