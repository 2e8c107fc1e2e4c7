"""A module that is called with the same input in every step."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.trace import HostKind, RunFacts
from pinchpoint.trace.run_values import RunValues, SameCalls
from program import Program

MS = 1_000_000
PLACE = ("serve.py", 15, "context")


def refining(again=()):
    """Steps of 10 ms of a device that has no rest: 6 of them in the encoder."""
    b = TraceBuilder()
    for step in range(6):
        at = step * 10 * MS
        b.step(step, at, 10 * MS)
        b.python("nn.Module: TextEncoder_0", at, 2 * MS)
        b.python("nn.Module: Layer_0", at + 1, MS)
        b.op("aten::mm", at + 2, MS // 2)
        b.launch(at + 3, 100_000, "gemm", at + MS, 6 * MS - 1_000)
        b.python("nn.Module: Denoiser_0", at + 3 * MS, 2 * MS)
        b.op("aten::mm", at + 3 * MS + 1, MS)
        b.launch(at + 3 * MS + 2, 100_000, "gemm", at + 7 * MS, 4 * MS - 1_000)
    values = RunValues(30, 2, True, (), (), 0, tuple(again))
    return replace(b.trace(), run=RunFacts(values=values))


def test_what_the_same_input_costs_can_be_kept(outcome):
    calls = [SameCalls("Layer", PLACE, 3, 1), SameCalls("TextEncoder", PLACE, 3, 1)]
    (found,) = outcome("same-input-again", refining(calls)).findings
    assert found.summary.startswith(
        "TextEncoder is called 1 × a step, and 2 of 3 calls that were watched repeat an input:"
        " 6.00 ms of the device's time"
    )
    assert str(found.location) == "context (serve.py:15)"
    device, host = found.changes
    assert device.factor == host.factor == pytest.approx(1 / 3)
    assert len(device.device_ops) == len(found.at_best[0].device_ops) > 0
    assert found.cost_ns_per_step == 6 * MS - 1_000


def test_without_calls_that_came_again_nothing_is_found(outcome):
    assert outcome("same-input-again", refining()).findings == ()


def parametrized(*, uses=4, inner="_Orthogonal_0", between=None, backward_us=500):
    """Each step uses a weight several times, which is computed anew each time, and its gradient.

    Four steps are judged."""
    p = Program()
    engine = p.builder.thread("autograd")
    for step in p.steps(5):
        for use in range(uses):
            with (
                p.frame("nn.Module: ParametrizationList_0"),
                p.frame(f"nn.Module: {inner}"),
                p.row("aten::linalg_matrix_exp", sequence=uses * step + use),
            ):
                p.kernel("gemm", 1_000)
            with p.row("aten::linear"):
                p.kernel("gemm", 300)
            if between:
                with p.row(between, kind=HostKind.ANNOTATION if "#" in between else 1):
                    p.kernel("elementwise", 10)
        p.thread = engine
        for use in reversed(range(uses)):
            with p.row("LinalgMatrixExpBackward0", sequence=uses * step + use):
                p.kernel("gemm", backward_us)
        p.thread = 0
        with p.row("Optimizer.step#AdamW.step", kind=HostKind.ANNOTATION):
            p.kernel("adamw", 10)
        p.sync()
    return p.trace()


def test_a_weight_is_computed_once_a_pass(outcome, predicted):
    (found,) = outcome("same-input-again", parametrized()).findings
    assert "ParametrizationList is called 4 × a step, and 12 of 16 calls" in found.summary
    assert "parametrize.cached()" in found.hint
    assert found.cost_ns_per_step == pytest.approx(4 * 1_500e3, rel=0.01)
    after = predicted(parametrized(), "same-input-again")
    assert after == pytest.approx((1_500 + 4 * 300 + 10) * 1e3, rel=0.05)


def test_one_that_iterates_at_each_call_is_told_with_what_that_changes(outcome):
    (found,) = outcome("same-input-again", parametrized(inner="_SpectralNorm_0")).findings
    assert "12 of 16 calls" in found.summary
    assert "if one power iteration a pass is enough" in found.fix
    assert found.confidence == "medium"


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(parametrized(uses=1), id="used once"),
        pytest.param(parametrized(inner="_SpectralNorm_0", uses=1), id="one iteration a pass"),
        pytest.param(parametrized(inner="Dropout_3"), id="one that drops"),
        pytest.param(parametrized(between="Optimizer.step#SGD.step"), id="an optimizer between"),
        pytest.param(parametrized(between="MulBackward0"), id="passes of one step"),
    ],
)
def test_a_weight_that_is_new_is_computed_anew(outcome, trace):
    assert outcome("same-input-again", trace).findings == ()
