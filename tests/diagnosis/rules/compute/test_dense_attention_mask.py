"""A mask of all pairs of queries and keys that is handed to fused attention."""

import pytest

from pinchpoint.diagnosis.engine import diagnose
from program import Program

QUERIES, PAIRS = [2, 16, 8192, 64], [8192, 8192]
NODE = "autograd::engine::evaluate_function: ScaledDotProductCudnnAttentionBackward0"


def attending(mask, *, strides=None, operator="aten::_cudnn_attention_forward"):
    """Attention of 10 ms forward and 25 backward, in steps with 10 ms of products."""
    p = Program()
    dense = [[], [], [], strides or []]
    for _ in p.steps(6):
        given = {"shapes": [QUERIES] * 3 + [mask or []], "dtypes": ["c10::BFloat16"] * 4}
        given |= {"strides": dense} if strides else {}
        with p.frame("model.py(7): forward"), p.row(operator, **given):
            p.kernel("cudnn_sdpa_sm90_flash_fprop", 10_000)
        with p.row(NODE), p.row("aten::_cudnn_attention_backward", shapes=[QUERIES] * 4):
            p.kernel("cudnn_sdpa_sm90_flash_bprop", 25_000)
        with p.row("aten::mm"):
            p.kernel("sm90_xmma_gemm_bf16", 10_000)
        p.sync()
    return p.trace()


@pytest.mark.parametrize("mask", [PAIRS, [1, 1, *PAIRS]], ids=["two dimensions", "four"])
def test_half_of_the_attention_may_be_won_and_none_is_promised(outcome, mask):
    (finding,) = outcome("dense-attention-mask", attending(mask)).findings
    assert finding.cost_ns_per_step == 35_000_000
    assert finding.location.function == "forward"
    (ranked,) = (r for r in diagnose(attending(mask)).found if r.id == "dense-attention-mask")
    least, most = (end / 1e6 for end in ranked.predicted.range_ns)
    assert most == pytest.approx(45, rel=0.02)
    assert least <= 10 + 35 * 65 / 128 < ranked.predicted.step_ns / 1e6


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(attending(None), id="no mask"),
        pytest.param(attending([2, 1, 8192, 8192]), id="one for each sequence: padding"),
        pytest.param(attending([1, 16, 8192, 8192]), id="a bias for each head"),
        pytest.param(attending([2, 1, 1, 8192]), id="padded keys"),
        pytest.param(attending(PAIRS, strides=[0, 1]), id="padded keys, expanded"),
        pytest.param(attending(PAIRS, operator="aten::mm"), id="no attention"),
    ],
)
def test_other_masks_are_not_meant(outcome, trace):
    assert outcome("dense-attention-mask", trace).answer == "clear"


def test_a_mask_that_is_expanded_to_all_sequences_is_the_same_for_them(outcome):
    strides = [0, 0, 8192, 1]
    trace = attending([2, 1, 8192, 8192], strides=strides)
    assert outcome("dense-attention-mask", trace).answer == "found"
