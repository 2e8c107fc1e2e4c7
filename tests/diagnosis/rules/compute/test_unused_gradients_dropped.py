"""Weight gradients that a function of the program's own computes and autograd drops."""

import pytest

from pinchpoint.trace import HostKind
from program import Program

ENGINE = "autograd::engine::evaluate_function: "
TOKENS, IN, OUT = 4096, 512, 2048
WEIGHT = [OUT, IN]
GRADIENT_US, INPUT_US = 400, 300


def product(p, left, right, us):
    with p.row("aten::mm", shapes=[left, right], dtypes=["c10::BFloat16"] * 2):
        p.kernel("nvjet_gemm", us)


def taken(p, shape):
    with p.row("torch::autograd::AccumulateGrad", shapes=[shape], dtypes=["c10::BFloat16"]):
        p.host("aten::detach", 1, kind=HostKind.OPERATOR, shapes=[shape])


def layer(p, node, after, weight_first):
    """The backward node of a layer; ``after`` runs in it on the weight's gradient."""
    with p.row(ENGINE + node), p.row(node, shapes=[[8, TOKENS // 8, OUT]]):
        if not weight_first:
            product(p, [TOKENS, OUT], WEIGHT, INPUT_US)
        p.host("aten::t", 1, kind=HostKind.OPERATOR, shapes=[[TOKENS, OUT]])
        product(p, [OUT, TOKENS], [TOKENS, IN], GRADIENT_US)
        if after:
            p.host(after, 1, kind=HostKind.OPERATOR, shapes=[WEIGHT])
        if weight_first:
            product(p, [TOKENS, OUT], WEIGHT, INPUT_US)


def optimizer(p, stepped):
    shapes = [[list(shape) for shape in stepped]] if stepped else []
    with (
        p.row("Optimizer.step#AdamW.step", kind=HostKind.ANNOTATION),
        p.row("aten::_fused_adamw_", shapes=shapes),
    ):
        p.kernel("adamw", 20)


def training(
    *,
    takes=0,
    node="CastMatmulBackward",
    after=None,
    stepped=(),
    stores=True,
    own_drops=False,
    weight_first=False,
):
    """Two layers through a function that computes its weight's gradient, ``takes`` of which are
    stored, and two adapters of PyTorch's own."""
    p = Program()
    engine = p.builder.thread("autograd")
    for _ in p.steps(4):
        p.thread = engine
        for number in range(2):
            layer(p, node, after, weight_first)
            if number < takes:
                taken(p, WEIGHT)
            with p.row(ENGINE + "MmBackward0"), p.row("MmBackward0", shapes=[[TOKENS, IN]]):
                product(p, [IN, TOKENS], [TOKENS, 16], 50)
            if not own_drops:
                taken(p, [IN, 16])
        if stores:
            taken(p, [7])
        p.thread = 0
        optimizer(p, stepped)
        p.sync()
    return p.trace()


@pytest.mark.parametrize("after", [None, "aten::to", "aten::t"])
def test_products_that_nothing_takes_are_in_vain(outcome, after):
    (finding,) = outcome("unused-gradients", training(after=after)).findings
    assert finding.cost_ns_per_step == 2 * GRADIENT_US * 1_000
    assert "CastMatmulBackward computes 2 weight gradients a step" in finding.summary
    assert finding.confidence == "medium"  # what the optimizer steps is not recorded


def test_where_the_weight_is_used_after_its_gradient(outcome):
    (finding,) = outcome("unused-gradients", training(weight_first=True)).findings
    assert finding.cost_ns_per_step == 2 * GRADIENT_US * 1_000


def test_of_two_alike_the_one_that_is_not_taken(outcome):
    (finding,) = outcome("unused-gradients", training(takes=1)).findings
    assert finding.cost_ns_per_step == GRADIENT_US * 1_000


def test_the_step_is_left_without_them(predicted):
    after = predicted(training(), "unused-gradients")
    assert after == pytest.approx((2 * (INPUT_US + 50) + 20) * 1_000, rel=0.1)


def test_an_optimizer_of_other_tensors_makes_it_sure(outcome):
    (finding,) = outcome("unused-gradients", training(stepped=([IN, 16],))).findings
    assert finding.confidence == "high"


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(training(takes=2), id="all are taken"),
        pytest.param(training(node="MmBackward0"), id="a node of PyTorch's own"),
        pytest.param(training(node="CompiledFunctionBackward"), id="a compiled graph"),
        pytest.param(training(after="aten::slice"), id="a part is returned"),
        pytest.param(training(after="aten::mul_"), id="the node computes with it"),
        pytest.param(training(stepped=(WEIGHT,)), id="an optimizer has it"),
        pytest.param(training(own_drops=True), id="the program reads gradients itself"),
    ],
)
def test_is_quiet(outcome, trace):
    assert not outcome("unused-gradients", trace).findings


def test_gradients_that_are_asked_for_by_the_program_are_its_own(outcome):
    assert not outcome("unused-gradients", training(stores=False, own_drops=True)).findings
