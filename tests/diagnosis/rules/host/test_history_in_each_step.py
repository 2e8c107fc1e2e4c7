import pytest

from program import Program

ADDED, BEFORE = 65_536, 600


def judging(*, added=ADDED, before=BEFORE, every_step=True, name="aten::sort", steps=5):
    """1 ms of work, and a metric over everything that was seen, which takes 2 ms."""
    p = Program()
    for number in p.steps(steps):
        with p.row("aten::mm", shapes=[[512, 512], [512, 512]], dtypes=["float", "float"]):
            p.kernel("gemm", 1_000)
        size = added * (before + number) if every_step or number == 2 else added
        with (
            p.frame("metric.py(9): compute"),
            p.row(name, shapes=[[size], [], []], dtypes=["float", "Scalar", "Scalar"]),
        ):
            p.kernel("radix_sort", 2_000 if size > added else 5)
        p.sync()
    return p.trace()


def test_what_all_steps_left_is_gone_through_again(outcome, predicted):
    trace = judging()
    (finding,) = outcome("history-in-each-step", trace).findings
    assert finding.summary.startswith(
        "A tensor of 39,583,744 elements is gone through in each step"
    )
    assert "65,536 longer each time" in finding.summary
    assert finding.location.function == "compute"
    assert predicted(trace, "history-in-each-step") == pytest.approx(1_003_000, rel=0.03)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(judging(added=0, before=1), id="it does not grow"),
        pytest.param(judging(before=2), id="a few steps"),
        pytest.param(judging(every_step=False), id="in one step of many"),
        pytest.param(judging(name="aten::_flash_attention_forward"), id="attention"),
    ],
)
def test_other_work_is_not_meant(outcome, trace):
    assert outcome("history-in-each-step", trace).answer == "clear"


def test_two_steps_tell_nothing(outcome):
    assert outcome("history-in-each-step", judging(steps=2)).answer == "not checked"
