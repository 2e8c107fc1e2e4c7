import pytest

from builders import TraceBuilder
from device_steps import Work, device_bound

GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
SOFTMAX = "void cunn_SoftMaxForwardReg<c10::BFloat16, float, c10::BFloat16>(int)"
MASKED = "void at::native::elementwise_kernel<128, 4, masked_fill_kernel>(int)"
ADD = "void at::native::vectorized_elementwise_kernel<8, CUDAFunctor_add<c10::BFloat16> >(int)"
BF16 = "c10::BFloat16"
HEADS, WIDTH = 32, 64


def attention(length, *, masked=True):
    scores = [2, HEADS // 2, length, length]
    query, key = [HEADS, length, WIDTH], [HEADS, WIDTH, length]
    work = [
        Work(GEMM, 400, "aten::bmm", [query, key], [BF16] * 2),
        Work(SOFTMAX, 2_000, "aten::_softmax", [scores], [BF16]),
        Work(GEMM, 400, "aten::bmm", [[HEADS, length, length], query], [BF16] * 2),
        Work(ADD, 100, "aten::add", [[2, length, 1024]] * 2, [BF16] * 2),
    ]
    mask = Work(MASKED, 1_600, "aten::masked_fill_", [scores, [length, length]], [BF16, "bool"])
    return work[:1] + [mask] * masked + work[1:]


def test_keeps_the_products_at_the_rate_of_the_fused_kernel(outcome):
    (finding,) = outcome("unfused-attention", device_bound(attention(4096), steps=1)).findings
    dropped, products = finding.changes
    assert len(dropped.device_ops) == 2
    assert len(products.device_ops) == 2
    causal = 4 * HEADS * 4096 * 4096 * WIDTH / 2
    assert products.factor == pytest.approx(causal / (989.4e12 * 0.35) * 1e6 / 800)
    assert finding.cost_ns_per_step == 4_400_000
    assert finding.evidence[-1].value == HEADS * 4096 * 4096 * 2


def test_without_a_mask_all_pairs_count(outcome):
    trace = device_bound(attention(1024, masked=False), steps=1)
    (finding,) = outcome("unfused-attention", trace).findings
    whole = 4 * HEADS * 1024 * 1024 * WIDTH
    assert finding.changes[1].factor == pytest.approx(whole / (989.4e12 * 0.27) * 1e6 / 800)


@pytest.mark.parametrize(
    ("added", "goes_in"),
    [
        ([HEADS // 2, 256, 256], "attn_mask=bias"),
        ([2, 1, 256, 256], "attn_mask=bias"),
        ([256, 256], "is_causal=True"),
        ([2, HEADS // 2, 256, 256], "is_causal=True"),
    ],
    ids=["by head", "by request", "one for all", "two scores"],
)
def test_a_bias_goes_into_the_kernel(outcome, added, goes_in):
    scores = [2, HEADS // 2, 256, 256]
    add = Work(ADD, 1_600, "aten::add", [scores, added], [BF16] * 2)
    first, *others = attention(256, masked=False)
    (finding,) = outcome("unfused-attention", device_bound([first, add, *others])).findings
    assert goes_in in finding.hint


def test_short_sequences_gain_nothing(outcome):
    assert outcome("unfused-attention", device_bound(attention(64))).answer == "clear"


def test_a_softmax_over_classes_is_no_attention(outcome):
    loss = Work(SOFTMAX, 500, "aten::_softmax", [[4096, 1000]], [BF16])
    assert outcome("unfused-attention", device_bound([loss])).answer == "clear"


def test_cannot_judge_without_shapes(outcome):
    b = TraceBuilder()
    b.op("aten::_softmax", 0, 10)
    b.launch(1, 5, SOFTMAX, 8, 500)
    assert outcome("unfused-attention", b.trace()).answer == "not checked"
    assert outcome("unfused-attention", TraceBuilder().trace()).answer == "not checked"


@pytest.mark.corpus
def test_labelled(labelled):
    slow = labelled("c39_unfused_attention.slow")
    assert next(iter(slow)) == "unfused-attention"
    assert slow["unfused-attention"] == pytest.approx(10.01, rel=0.1)
