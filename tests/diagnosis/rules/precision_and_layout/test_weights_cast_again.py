import pytest

from pinchpoint.trace import HostKind
from program import Program

DATA, WEIGHT = [512, 1024], [1024, 1024]
ROUNDS = 8
JUDGED = 5  # of 6 steps


def refining(*, rounds=ROUNDS, casts=1, modules=1, data=DATA, backward_between=False, named=True):
    """Each step runs the same modules ``rounds`` times; each call casts the weight anew."""
    p = Program()
    for _ in p.steps(6):
        for _ in range(rounds):
            for module in range(modules):
                with p.row(
                    f"nn.Module: Linear_{module}",
                    kind=HostKind.MODULE if named else HostKind.PYTHON,
                ):
                    for _ in range(casts):
                        _linear(p, data)
            if backward_between:
                with p.row("autograd::engine::evaluate_function: ToCopyBackward0"):
                    _cast(p, WEIGHT, "float", "c10::BFloat16")
    return p.trace()


def _linear(p, data):
    with p.row("aten::linear", shapes=[data, WEIGHT, []], dtypes=["float", "float", ""]):
        _cast(p, WEIGHT, "c10::BFloat16", "float")
        with p.row("aten::mm", shapes=[data, WEIGHT], dtypes=["c10::BFloat16"] * 2):
            p.kernel("gemm", 20)


def _cast(p, shape, target, source):
    with p.row("aten::copy_", shapes=[shape, shape, []], dtypes=[target, source, "Scalar"]):
        p.kernel("elementwise", 30)


def test_all_casts_but_the_first_of_each_weight_go(outcome, ranked):
    trace = refining(modules=2)
    (finding,) = outcome("weights-cast-again", trace).findings
    assert finding.cost_ns_per_step == 2 * (ROUNDS - 1) * 30_000
    assert f"{ROUNDS} times a pass" in finding.summary
    assert len(finding.changes[0].device_ops) == JUDGED * 2 * (ROUNDS - 1)
    assert "weights-cast-again" in ranked(trace)


def test_casts_back_of_gradients_go_with_them(outcome):
    p = Program()
    for _ in p.steps(6):
        for _ in range(ROUNDS):
            with p.row("nn.Module: Linear_0", kind=HostKind.MODULE):
                _linear(p, DATA)
        for _ in range(ROUNDS):
            with p.row("autograd::engine::evaluate_function: ToCopyBackward0"):
                _cast(p, WEIGHT, "float", "c10::BFloat16")
                with p.row("aten::add_", shapes=[WEIGHT, WEIGHT, []], dtypes=["float"] * 2):
                    p.kernel("elementwise", 30)
    (finding,) = outcome("weights-cast-again", p.trace()).findings
    gone, added = finding.changes
    assert len(gone.device_ops) == JUDGED * 2 * (ROUNDS - 1)
    assert (len(added.device_ops), added.factor) == (JUDGED * ROUNDS, 0.5)


@pytest.mark.parametrize(
    "trace",
    [
        refining(rounds=1),
        refining(rounds=1, casts=3),
        refining(rounds=1, modules=8),
        refining(data=WEIGHT),
        refining(backward_between=True),
    ],
    ids=["once", "several weights of a module", "many modules", "maybe data", "micro-batches"],
)
def test_first_casts_are_no_finding(outcome, trace):
    assert outcome("weights-cast-again", trace).answer == "clear"


def test_cannot_judge_without_modules(outcome):
    assert outcome("weights-cast-again", refining(named=False)).answer == "not checked"
