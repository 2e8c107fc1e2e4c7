import pytest

from builders import TraceBuilder
from pinchpoint.trace import HostKind
from program import Program

ENCODER, HEAD, BIAS = [1024, 1024], [20, 1024], [20]
NODE = "autograd::engine::evaluate_function: "
BACKWARD_US, HEAD_US, ADD_US = 400, 100, 10


def training(
    *,
    frozen=False,
    zeroes=True,
    stepped=(HEAD, BIAS),
    steps=5,
    shapes=True,
    optimizer=True,
    ranks=1,
    drops=None,
):
    """A head on an encoder; the encoder's gradients grow unless it is frozen.

    Without ``zeroes`` those of the head grow as well, as where passes of one step add up.
    """
    p = Program()
    engine = p.builder.thread("autograd")

    def gradient(shape, *, adds):
        given = {"shapes": [shape], "dtypes": ["float"]} if shapes else {}
        with (
            p.row(NODE + "torch::autograd::AccumulateGrad"),
            p.row("torch::autograd::AccumulateGrad", **given),
        ):
            if adds:
                with p.row("aten::add_", shapes=[shape, shape], dtypes=["float", "float"]):
                    p.kernel("add", ADD_US)

    for number in p.steps(steps):
        with p.row("aten::linear"):
            p.kernel("gemm", 500)
        p.thread = engine
        with p.row(NODE + "AddmmBackward0"), p.row("aten::mm"):
            p.kernel("gemm", HEAD_US)
        gradient(BIAS, adds=not zeroes)
        gradient(HEAD, adds=not zeroes)
        if not frozen:
            with p.row(NODE + "MmBackward0"), p.row("aten::mm"):
                p.kernel("gemm", BACKWARD_US)
            gradient(ENCODER, adds=True)
        p.thread = 0
        if drops:
            with p.row("Optimizer.zero_grad#AdamW.zero_grad", kind=HostKind.ANNOTATION):
                p.host(drops, 10, kind=HostKind.OPERATOR)
        if ranks > 1:
            p.collective(20)
        if optimizer and (optimizer != "rare" or not number % 2):
            lists = [list(stepped)] * 4
            with (
                p.row("Optimizer.step#AdamW.step", kind=HostKind.ANNOTATION),
                p.row("aten::_fused_adamw_", shapes=lists, dtypes=["TensorList"] * 4),
            ):
                p.kernel("adamw", 20)
        p.sync()
    return p.trace()


def test_what_runs_after_the_last_gradient_that_is_used_is_in_vain(outcome):
    (finding,) = outcome("unused-gradients", training()).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["gradients that nobody uses"] == 1
    assert evidence["gradients that are used"] == 2
    assert evidence["largest of the unused"] == 1024 * 1024
    assert finding.cost_ns_per_step == (BACKWARD_US + ADD_US) * 1_000


def test_without_them_the_step_is_that_of_the_frozen_encoder(predicted):
    after = predicted(training(), "unused-gradients")
    assert after == pytest.approx((500 + HEAD_US + 20) * 1_000, rel=0.1)


FILTER, MAPS = [64, 32, 3, 3], [8, 64, 16, 16]


@pytest.mark.parametrize(
    ("encoder", "in_vain_us"), [(ENCODER, 300), (FILTER, 300 + 50)], ids=["linear", "convolution"]
)
def test_what_is_for_their_shape_goes_wherever_it_runs(outcome, encoder, in_vain_us):
    """An adapter that is trained, in front of a layer that is not: the way to it is needed."""
    p = Program()
    engine = p.builder.thread("autograd")

    def of_a_product():
        given = {"shapes": [[1024, 64], [64, 1024]], "dtypes": ["float"] * 2}
        with p.row(NODE + "MmBackward0"):
            with p.row("aten::mm", **given):
                p.kernel("sm90_xmma_gemm_f32", 300)
            with p.row("aten::mm", shapes=[[64, 1024], [1024, 1024]], dtypes=["float"] * 2):
                p.kernel("sm90_xmma_gemm_f32", 200)

    def of_a_convolution():
        given = {"shapes": [MAPS, [8, 32, 16, 16], FILTER], "dtypes": ["float"] * 3}
        with p.row(NODE + "ConvolutionBackward0"):
            with p.row("aten::convolution_backward", **given):
                p.kernel("sm90_xmma_dgrad_implicit_gemm_f32", 200)
                p.kernel("sm90_xmma_wgrad_implicit_gemm_f32", 300)
            with p.row("aten::sum", shapes=[MAPS], dtypes=["float"]):
                p.kernel("reduce_kernel", 50)

    for _ in p.steps(5):
        p.thread = engine
        (of_a_product if encoder is ENCODER else of_a_convolution)()
        for shape, adds in ((encoder, True), (HEAD, False)):
            with p.row("torch::autograd::AccumulateGrad", shapes=[shape], dtypes=["float"]):
                if adds:
                    with p.row("aten::add_"):
                        p.kernel("add", ADD_US)
        p.thread = 0
        with (
            p.row("Optimizer.step#SGD.step", kind=HostKind.ANNOTATION),
            p.row("aten::add_", shapes=[HEAD, HEAD]),
        ):
            p.kernel("sgd", 20)
        p.sync()
    (finding,) = outcome("unused-gradients", p.trace()).findings
    assert finding.cost_ns_per_step == (in_vain_us + ADD_US) * 1_000


@pytest.mark.parametrize(
    ("drops", "answer"),
    [("aten::detach", "found"), ("aten::zero_", "not checked"), (None, "not checked")],
    ids=["dropped", "zeroed in place", "kept"],
)
def test_without_shapes_of_lists_an_optimizer_that_drops_its_gradients_tells(
    outcome, drops, answer
):
    said = outcome("unused-gradients", training(stepped=(), drops=drops, steps=4))
    assert said.answer == answer
    assert [f.confidence for f in said.findings] == ["medium"] * (answer == "found")


def test_a_frozen_encoder_is_healthy(outcome):
    assert outcome("unused-gradients", training(frozen=True)).answer == "clear"


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        pytest.param(training(zeroes=False), "each gradient is added to", id="passes add up"),
        pytest.param(training(stepped=(ENCODER, HEAD, BIAS)), "an optimizer steps", id="stepped"),
        pytest.param(training(stepped=()), "was not recorded", id="a list too long to record"),
        pytest.param(training(ranks=2), "ranks share", id="several ranks"),
        pytest.param(training(optimizer=False), "optimizer step in each", id="none in the file"),
        pytest.param(training(optimizer="rare"), "optimizer step in each", id="every second step"),
        pytest.param(training(steps=2), "three steps", id="two steps"),
        pytest.param(training(shapes=False), "shapes were not recorded", id="no shapes"),
    ],
)
def test_says_why_it_cannot_tell(outcome, trace, why):
    said = outcome("unused-gradients", trace)
    assert said.answer == "not checked"
    assert why in said.why


def test_has_nothing_to_judge(outcome):
    assert outcome("unused-gradients", TraceBuilder().trace()).answer == "not checked"
