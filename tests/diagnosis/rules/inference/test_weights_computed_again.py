import pytest

from pinchpoint.trace import HostKind
from program import Program

LAYERS, COMPUTE_US, LAYER_US = 10, 80, 200
DATA, WEIGHT, SCALE = [8, 512, 64], [512, 512, 3], [512, 1, 1]


def vocoder(operator="aten::_weight_norm", *, module="ParametrizationList_{}", trains=False):
    """Each layer computes its weight, 80 µs of the host and 3 µs of the device, and convolves."""
    p = Program()
    for _ in p.steps(6):
        with p.frame("serve.py(30): forward"):
            for layer in range(LAYERS):
                with (
                    p.row(f"nn.Module: {module.format(layer)}", kind=HostKind.MODULE),
                    p.row(operator, shapes=[WEIGHT, SCALE]),
                ):
                    p.busy(COMPUTE_US)
                    p.kernel("weight_norm_fwd", 3)
                with p.row("aten::conv1d", shapes=[DATA, WEIGHT]):
                    p.busy(LAYER_US)
                    p.kernel("conv", 5)
        if trains:
            with p.row("autograd::engine::evaluate_function: ConvolutionBackward0"):
                p.kernel("conv_bwd", 5)
    return p.trace()


@pytest.mark.parametrize(
    "trace",
    [vocoder(module="_WeightNorm_{}"), vocoder("aten::mul"), vocoder()],
    ids=["by the operator", "by the module", "both"],
)
def test_counts_weights_and_their_time(outcome, trace):
    (finding,) = outcome("weights-computed-again", trace).findings
    assert finding.cost_ns_per_step == LAYERS * 3_000
    assert finding.evidence[-2].value == LAYERS
    assert finding.location.function == "forward"


def test_without_it_the_layers_remain(predicted):
    after = predicted(vocoder(), "weights-computed-again")
    assert after == pytest.approx(LAYERS * LAYER_US * 1_000, rel=0.05)


@pytest.mark.parametrize(
    "trace",
    [vocoder("aten::mul", module="Modulation_{}"), vocoder(trains=True)],
    ids=["a weight from data", "training"],
)
def test_other_weights_are_not_meant(outcome, trace):
    assert outcome("weights-computed-again", trace).answer == "clear"
