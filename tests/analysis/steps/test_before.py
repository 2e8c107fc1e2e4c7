import pytest

from builders import TraceBuilder
from pinchpoint.analysis.steps.before import Before, before_what_is_judged
from pinchpoint.trace import ApiKind, HostKind


def kernels(builder, at, count=10):
    """Operators with a kernel each, 10 ns apart; returns when the next may start."""
    for _ in range(count):
        builder.op("aten::mm", at, 8)
        builder.launch(at, 2, "gemm", at + 3, 5)
        at += 10
    return at


def test_what_a_program_does_once_is_most_of_the_recording():
    b = TraceBuilder()
    b.annotation("start", 0, 1000)
    b.api("cudaMalloc", 100, 700, kind=ApiKind.MALLOC)
    kernels(b, 2000)
    assert before_what_is_judged(b.trace()) == Before(2003, "cudaMalloc", 700)


@pytest.mark.parametrize(
    ("inner", "longest"),
    [
        pytest.param([("aten::empty", 300, 20)], ("wait for a batch", 900), id="holds little"),
        pytest.param([("fetch", 100, 850), ("aten::empty", 300, 20)], ("fetch", 850), id="inner"),
        pytest.param([("cudaFree", 100, 500)], ("cudaFree", 500), id="holds much"),
    ],
)
def test_a_call_that_holds_little_takes_its_time_itself(inner, longest):
    b = TraceBuilder()
    b.annotation("start", 0, 2000)
    b.annotation("wait for a batch", 50, 900)
    for name, at, takes in inner:
        b.op(name, at, takes)
    b.op("aten::linear", 1000, 500)
    kernels(b, 2000)
    assert before_what_is_judged(b.trace()) == Before(2003, *longest)


@pytest.mark.parametrize("begins", [1700, 1900])
def test_little_before_it_is_not_said(begins):
    b = TraceBuilder()
    b.annotation("start", begins, 10)
    kernels(b, 2000)
    found = before_what_is_judged(b.trace())
    assert (found is not None) == (2003 - begins >= 4 * 95)


def test_many_short_calls_name_none():
    b = TraceBuilder()
    for i in range(100):
        b.op("aten::empty", 20 * i, 10)
    kernels(b, 2000)
    assert before_what_is_judged(b.trace()) == Before(2003, "", 0)


def test_stacks_begin_long_before_the_program_is_recorded():
    b = TraceBuilder()
    b.op("main.py(1): <module>", 0, 5000, kind=HostKind.PYTHON)
    kernels(b, 2000)
    assert before_what_is_judged(b.trace()) is None
