"""Steps of several backward passes, known by where all gradients are set to zero."""

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.steps.gradient_resets import accumulated_steps
from pinchpoint.analysis.steps.steps import steps

KERNELS = ["embed", "gemm", "relu", "gemm", "add", "gemm", "relu", "gemm", "loss", "gemm", "gemm"]
PASS = 1000


def training(passes, *, resets=4, gradients=3, stray=None):
    """Passes of 1 µs, all alike; after so many of each the gradients are set to zero."""
    b, at = TraceBuilder(), 0
    for number, count in enumerate(passes if isinstance(passes, list) else [passes] * resets):
        for turn in range(count):
            for i, kernel in enumerate(KERNELS):
                b.launch(at + 10 * i, 2, kernel, at + 10 * i + 3, 5)
            for i in range(gradients):
                b.op("torch::autograd::AccumulateGrad", at + 200 + 20 * i, 10)
            if stray == number and turn == 1:
                b.op("aten::zero_", at + 150, 5)
            at += PASS
        for i in range(gradients):
            b.op("aten::zero_", at - 100 + 10 * i, 5)
    return b.trace()


def test_the_moments_at_which_the_gradients_are_zero():
    ends = accumulated_steps(training(5))
    assert ends.tolist() == [5 * PASS * (i + 1) - 100 + 25 for i in range(4)]


def test_a_zero_of_something_else_changes_nothing():
    assert accumulated_steps(training(5, stray=2)).tolist() == (
        accumulated_steps(training(5)).tolist()
    )


@pytest.mark.parametrize(
    "trace",
    [
        training(1, resets=8),
        training([5, 5, 4, 5]),
        training(5, resets=2),
        training(5, gradients=1),
        training(5, gradients=0),
        TraceBuilder().trace(),
    ],
    ids=["one pass a step", "uneven", "too few", "a buffer", "no gradients", "empty"],
)
def test_no_such_steps(trace):
    assert accumulated_steps(trace) is None


def test_micro_steps_are_no_steps():
    found = steps(training(5, resets=5))
    assert found.how == "inferred"
    assert "gradients are set to zero" in found.basis
    assert found.durations_ns.tolist() == [5 * PASS] * 3


def test_steps_of_one_pass_are_found_as_before():
    found = steps(training(1, resets=9))
    assert "gradients" not in found.basis
