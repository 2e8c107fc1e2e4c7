import pytest

from builders import TraceBuilder, with_what_goes
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
    after_ns = with_what_goes(10 * MS, 10 * MS - (1 - left) * 8 * MS)
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


def by_a_library(*, sorts_ns=2 * MS, file="torchmetrics/curve.py", product=False):
    """Steps of 10 ms, 8 of them in a library's call: a sort of all that was seen, then a loop over
    20 classes of 0.2 ms each, in which the sizes of what is found do not grow alike."""
    builder = TraceBuilder(devices=())
    for number in range(4):
        at = number * 10 * MS
        builder.step(number, at, 10 * MS)
        builder.python("train.py(40): step", at + 1, 10 * MS - 10)
        builder.python(f"{file}(9): compute", at + MS, 8 * MS)
        size = ADDED * (40 + number)
        rows = {"shapes": f"[[{size}], []]", "dtypes": '["float", ""]'}
        builder.op("aten::sort", at + MS + 5, sorts_ns, **rows)
        for turn in range(20):
            here = at + MS + 10 + sorts_ns + turn * 250_000
            builder.python(f"{file}(70): of_class", here, 240_000)
            builder.op("aten::index", here + 10, 200_000, shapes="[[300], [1]]")
        if product:
            shapes = f"[[{size // 64}, 64], [64, 8]]"
            builder.op("aten::mm", at + 8 * MS, 900_000, shapes=shapes)
    return builder.trace()


def test_a_librarys_call_for_the_history_is_told_whole_with_the_loops_in_it(outcome, predicted):
    trace = by_a_library()
    (finding,) = outcome("history-in-each-step", trace).findings
    assert finding.summary.endswith("all that is called for it takes 8.00 ms")
    assert finding.location.function == "step"
    assert outcome("cpu-operator-loop", trace).findings == ()
    left = sum(1 / (40 + number) for number in range(4)) / 4
    alone_ns, whole_ns = (
        with_what_goes(10 * MS, 10 * MS - (1 - left) * ns) for ns in (2 * MS, 8 * MS)
    )
    between_ns = (alone_ns * whole_ns) ** 0.5  # without the sort alone, and without the call
    assert predicted(trace, "history-in-each-step") == pytest.approx(between_ns, rel=0.01)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(by_a_library(sorts_ns=MS), id="little of the call"),
        pytest.param(by_a_library(file="metric.py"), id="the program's own function"),
    ],
)
def test_a_call_that_is_for_something_else_too_is_left_as_it_is(outcome, trace):
    (finding,) = outcome("history-in-each-step", trace).findings
    assert "all that is called" not in finding.summary
    assert outcome("cpu-operator-loop", trace).findings


def test_a_call_that_multiplies_matrices_is_about_the_history(outcome):
    assert outcome("history-in-each-step", by_a_library(product=True)).findings == ()
