"""Operators of serving engines."""

import pytest

from pinchpoint.analysis.costs import OperatorCall, cost_of

BF16, FP8, HALF = "c10::BFloat16", "c10::Float8_e4m3fn", "c10::Half"
CACHE = (4_000, 16, 8, 64)


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes", "flops", "moved"),
    [
        ("_C::rms_norm", ((8, 64), (8, 64), (64,)), (BF16,) * 3, None, 2 * (2 * 512 + 64)),
        ("_C::fused_add_rms_norm", ((8, 64), (8, 64), (64,)), (BF16,) * 3, None, 4 * (1024 + 64)),
        (
            "_C::rotary_embedding",  # positions, queries, keys; of the table few rows
            ((8,), (8, 64), (8, 32), (), (1024, 16), ()),
            ("long int", BF16, BF16, "Scalar", BF16, "Scalar"),
            None,
            2 * (8 * 8 + 2 * 8 * 64 + 2 * 8 * 32),
        ),
        ("_C::static_scaled_fp8_quant", ((8, 64), (8, 64)), (FP8, BF16), None, 512 + 1024),
        (
            "_C_cache_ops::reshape_and_cache_flash",
            ((32, 8, 64), (32, 8, 64), CACHE, CACHE),
            (BF16, BF16, FP8, FP8),
            0,
            2 * 32 * 8 * 64 * (2 + 1),
        ),
        ("aten::_grouped_mm", ((128, 64), (4, 64, 32)), (BF16, BF16), 2 * 128 * 64 * 32, None),
        ("_C::cutlass_scaled_mm", ((8, 32), (8, 64), (64, 32)), (BF16, FP8, FP8), 32768, None),
        (
            "vllm::fp8_gemm_nt_op",
            ((8, 64), (), (32, 64)),
            (FP8, "", FP8),
            32768,
            8 * 64 + 32 * 64 + 2 * 8 * 32,
        ),
        (
            "_C::cutlass_scaled_fp4_mm",  # two numbers a byte
            ((8, 32), (8, 32), (32, 32)),
            (BF16, "unsigned char", "unsigned char"),
            32768,
            8 * 32 + 32 * 32 + 2 * 8 * 32,
        ),
        (
            "vllm::inplace_fused_experts",  # one token with two of two experts, or one: 1.5
            ((1, 64), (2, 256, 64), (2, 64, 128), (1, 2), (1, 2)),
            (BF16,) * 5,
            2 * 2 * (256 * 64 + 64 * 128),
            round(1.5 * 2 * (256 * 64 + 64 * 128)) + 2 * 2 * 64,
        ),
        ("_C::awq_gemm", ((8, 64), (64, 8), (2, 64)), (HALF, "int", HALF), 2 * 8 * 64 * 64, None),
        (
            "aten::_weight_int8pack_mm",
            ((8, 64), (32, 64), (32,)),
            (BF16, "signed char", BF16),
            2 * 8 * 64 * 32,
            2 * 8 * 64 + 32 * 64 + 2 * 8 * 32,
        ),
        (
            "flashinfer::trtllm_fp8_block_scale_moe",  # choices hidden: one expert a token at least
            ((1, 2), (2,), (1, 64), (1, 1), (2, 256, 64), (2, 2, 1), (2, 64, 128)),
            ("float", BF16, FP8, "float", FP8, "float", FP8),
            2 * (256 * 64 + 64 * 128),
            256 * 64 + 64 * 128 + 2 * 64,
        ),
        ("_moe_C::topk_softmax", ((8, 2), (8, 2), (8, 64)), ("float", "int", BF16), None, 1152),
    ],
)
def test_costs(name, shapes, dtypes, flops, moved):
    found = cost_of(OperatorCall(name, shapes, dtypes))
    assert found.flops == flops
    assert moved is None or found.bytes == moved


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("vllm::fused_experts", ((1, 64), (2, 64), (2, 64), (1, 2), (1, 2))),
        ("vllm::moe_forward", ((1, 64), (1, 8))),  # its weights are hidden
        ("sgl_kernel::fwd", ((1, 8, 64), (9, 16, 8, 64), (9, 16, 8, 64))),  # and lengths here
        ("vllm::fused_experts", ((1, 64), (0, 256, 64), (0, 64, 128), (1, 2), (1, 2))),
        ("flash_attn::_flash_attn_varlen_forward", ((9, 4, 64), (9, 64), (9, 64), (2,))),
    ],
)
def test_shapes_that_cannot_be_have_no_cost(name, shapes):
    assert cost_of(OperatorCall(name, shapes, (BF16,) * len(shapes))) is None


def test_decoding_from_pages_reads_each_head_of_the_cache_once():
    """Three sequences of at most 40 tokens: 4 of 8 heads share one of the two in the cache."""
    shapes = ((3, 8, 64), (3, 8, 64), CACHE, CACHE, (), (), (3, 10), (3,), (), ())
    values = ("",) * 4 + ("2", "0.125", "", "", "16", "40")
    call = OperatorCall("_C::paged_attention_v1", shapes, (BF16,) * 4, values)
    found = cost_of(call)
    assert found.bytes == 2 * 3 * 40 * 2 * 64 * 2 + 2 * 2 * 3 * 8 * 64
    assert found.flops == 4 * 3 * 40 * 8 * 64


@pytest.mark.parametrize("name", ["vllm::moe_forward", "_C::paged_attention_v1", "my::norm"])
def test_what_is_not_known(name):
    assert cost_of(OperatorCall(name, ((8, 64), (8, 64)), (BF16, BF16))) is None
