import pytest

from builders import TraceBuilder
from program import Program

MS = 1_000_000
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


def on_cpu(*, added=ADDED, before=40, name="aten::sort", steps=4, shapes=True):
    """The same of a program without a device: 10 ms of each step, 8 of them the metric's."""
    builder = TraceBuilder()
    builder.devices = []
    for number in range(steps):
        at = number * 10 * MS
        builder.step(number, at, 10 * MS)
        builder.python("train.py(40): step", at + 1, 10 * MS - 10)
        size = added * (before + number)
        rows = {"shapes": f"[[{size}], []]", "dtypes": '["float", ""]'} if shapes else {}
        builder.python("metric.py(9): compute", at + MS, 8 * MS + 10)
        builder.op(name, at + MS + 5, 8 * MS, **rows)
    return builder.trace()


def test_on_a_cpu_operators_are_told_by_their_inputs_as_well(outcome, predicted):
    trace = on_cpu()
    (finding,) = outcome("history-in-each-step", trace).findings
    assert finding.summary.startswith("A tensor of 2,818,048 elements is gone through in each step")
    assert finding.location.function == "compute"
    left = sum(1 / (40 + number) for number in range(4)) / 4
    after_ns = 10 * MS - (1 - left) * 8 * MS
    assert predicted(trace, "history-in-each-step") == pytest.approx(after_ns, rel=0.01)


@pytest.mark.parametrize(
    ("trace", "answer"),
    [
        (on_cpu(added=0), "clear"),
        (on_cpu(before=2), "clear"),
        (on_cpu(name="aten::_softmax"), "clear"),
        (on_cpu(steps=2), "not checked"),
        (on_cpu(shapes=False), "not checked"),
    ],
    ids=["stays", "few steps", "about it", "two steps", "no shapes"],
)
def test_on_a_cpu_other_work_is_not_meant(outcome, trace, answer):
    assert outcome("history-in-each-step", trace).answer == answer
