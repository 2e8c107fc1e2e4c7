import pytest

from builders import TraceBuilder
from device_steps import Work, device_bound
from pinchpoint.diagnosis.rules.precision_and_layout.no_mixed_precision import CASTS_NS

TF32 = "sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x256x32_execute_segment_k_off_kernel__5x"
BF16 = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
SIMT = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_tn_align1>(Params)"
ATTENTION = (
    "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>)"
)
NORM = "void at::native::vectorized_layer_norm_kernel<float, float, false>(int, float)"
HEADS = [8, 1024, 16, 64]


def product(kernel=TF32, takes_us=1_000.0):
    return Work(kernel, takes_us, "aten::mm", [[8192, 4096], [4096, 4096]], ["float", "float"])


PLAIN = (
    "c15_fp64_by_accident",
    "c34_no_tensor_cores",
    "d03_decoy_copies_in_fp32_gemm",
    "t01_two_h2d_and_fp32",
)
NORMS = Work(NORM, 50, "aten::native_layer_norm", [[8192, 4096]], ["float"])


def test_products_take_what_bf16_takes(outcome):
    trace = device_bound([product(), NORMS])
    (finding,) = outcome("no-mixed-precision", trace).findings
    _, products, _, _, _ = finding.changes
    expected_us = 7 + 2 * 8192 * 4096 * 4096 / (989.4e12 * 0.85) * 1e6
    assert products.factor == pytest.approx(expected_us / 1_000)
    assert finding.cost_ns_per_step == 1_000_000


def test_attention_takes_what_the_fused_16_bit_kernel_takes(outcome):
    operator = "aten::_efficient_attention_forward"
    values = ["", "", "", "", "", "", "", "", "0.", "0"]
    work = Work(ATTENTION, 2_000, operator, [HEADS] * 3 + [[]] * 7, ["float"] * 3, values=values)
    (finding,) = outcome("no-mixed-precision", device_bound([work])).findings
    flops = 4 * 8 * 16 * 1024 * 1024 * 64
    assert finding.changes[2].factor == pytest.approx(flops / (989.4e12 * 0.27) * 1e6 / 2_000)


def test_what_lies_between_convolutions_moves_half_the_bytes(outcome):
    image = [32, 64, 56, 56]
    conv = "sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32_k"
    relu = "void at::native::vectorized_elementwise_kernel<4, clamp<float> >(int)"
    work = [
        Work(conv, 500, "aten::cudnn_convolution", [image, [64, 64, 3, 3]], ["float"] * 2),
        Work(relu, 100, "aten::relu", [image], ["float"]),
        Work(relu, 100, "aten::relu", [[8192, 4096]], ["float"]),
    ]
    (finding,) = outcome("no-mixed-precision", device_bound(work, steps=1)).findings
    convolutions, _, _, between, _ = finding.changes
    assert (convolutions.factor, between.factor) == (0.5, 0.5)
    assert len(between.device_ops) == 1


@pytest.mark.parametrize(
    ("table", "promoted"), [([HEADS, "float"], True), ([HEADS, "c10::BFloat16"], False)]
)
def test_a_table_of_float32_takes_16_bits_away(outcome, table, promoted):
    """Rotary tables that stayed in float32: attention follows them, the products do not."""
    (shape, kind), bf16 = table, "c10::BFloat16"
    values = ["", "", "", "", "", "", "", "", "0.", "0"]
    operator = "aten::_efficient_attention_forward"
    multiply = "void at::native::elementwise_kernel<128, 4, mul<float> >(int)"
    work = [
        Work(BF16, 200, "aten::mm", [[8192, 4096], [4096, 4096]], [bf16, bf16]),
        Work(multiply, 50, "aten::mul", [HEADS, shape], [bf16, kind]),
        Work(ATTENTION, 2_000, operator, [HEADS] * 3 + [[]] * 7, ["float"] * 3, values=values),
    ]
    (finding,) = outcome("no-mixed-precision", device_bound(work)).findings
    assert ("bring that one" in finding.fix) == promoted
    assert ("promoting elementwise work" in {e.what for e in finding.evidence}) == promoted


@pytest.mark.parametrize(
    ("products", "cast", "told"),
    [
        (BF16, HEADS, True),
        (BF16, [8, 16, 1024, 64], True),
        (BF16, [8192, 4096], False),
        (TF32, HEADS, False),
    ],
    ids=["as attention has them", "heads first", "other tensors", "a model in TF32"],
)
def test_attention_alone_in_float32_is_told_by_the_casts_of_its_inputs(
    outcome, products, cast, told
):
    """A rotary embedding computes in float32 and does not cast back; the products have 16 bits."""
    kind = "c10::BFloat16" if products == BF16 else "float"
    values = ["", "", "", "", "", "", "", "", "0.", "0"]
    operator = "aten::_efficient_attention_forward"
    copy = "void at::native::vectorized_elementwise_kernel<4, copy<float> >(int)"
    work = [
        Work(products, 200, "aten::mm", [[8192, 4096], [4096, 4096]], [kind, kind]),
        Work(copy, 50, "aten::copy_", [cast, cast], ["float", "c10::BFloat16"]),
        Work(ATTENTION, 2_000, operator, [HEADS] * 3 + [[]] * 7, ["float"] * 3, values=values),
    ]
    (finding,) = outcome("no-mixed-precision", device_bound(work)).findings
    assert ("Cast queries and keys back" in finding.fix) == told
    assert finding.summary.startswith("Attention runs in float32, 2.00 ms") == told
    assert ("casts of its inputs to float32" in {e.what for e in finding.evidence}) == told
    assert ("autocast" in finding.hint) != told


def test_says_nothing_of_a_plain_stack_of_linear_layers(outcome):
    assert outcome("no-mixed-precision", device_bound([product()])).answer == "clear"


def test_plain_cores_are_another_cause(outcome):
    trace = device_bound([product(SIMT), NORMS])
    assert outcome("no-mixed-precision", trace).answer == "clear"


def test_is_quiet_where_most_products_have_16_bits(outcome):
    trace = device_bound([product(BF16), product(TF32, 300), NORMS])
    assert outcome("no-mixed-precision", trace).answer == "clear"


def test_cannot_judge_without_a_device(outcome):
    assert outcome("no-mixed-precision", TraceBuilder().trace()).answer == "not checked"


@pytest.mark.corpus
def test_labelled(labelled):
    slow = labelled("c35_no_mixed_precision.slow")
    assert next(iter(slow)) == "no-mixed-precision"
    assert slow["no-mixed-precision"] == pytest.approx(20.85, rel=0.1)


@pytest.mark.corpus
@pytest.mark.parametrize("name", PLAIN)
def test_says_nothing_of_plain_networks_in_tf32(labelled, name):
    assert "no-mixed-precision" not in labelled(f"{name}.fixed")


def test_products_that_wait_for_memory_gain_nothing(outcome):
    """Eight numbers a row: reading and writing takes longer than multiplying in any format."""
    thin = Work(TF32, 1_000, "aten::mm", [[8_000_000, 8], [8, 32]], ["float", "float"])
    assert outcome("no-mixed-precision", device_bound([thin, NORMS])).answer == "clear"


def test_autocast_casts_on_the_host(outcome):
    (finding,) = outcome("no-mixed-precision", device_bound([product(), NORMS])).findings
    added = finding.changes[-1]
    assert added.ns == CASTS_NS
    assert len(added.api_calls) == len(finding.changes[1].device_ops)
