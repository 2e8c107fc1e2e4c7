import pytest

from builders import TraceBuilder
from pinchpoint.analysis.device.kernel_precision import (
    UNKNOWN,
    MatrixUnits,
    Precision,
    alignment_of_kernel_name,
    matrix_units_of_kernel_name,
    precision_of_device_ops,
    precision_of_dtype,
    precision_of_kernel_name,
)
from pinchpoint.trace import MemoryKind

YES, NO = MatrixUnits.YES, MatrixUnits.NO
NAMES = [
    (Precision.BF16, YES, "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"),
    (Precision.FP16, YES, "nvjet_hsh_256x128_64x4_2x1_v_bz_TNN"),
    (Precision.FP8, YES, "nvjet_qqtst_128x256_128x6_2x1_2cta_v_bz_TNT"),
    (Precision.FP32, NO, "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize256x64x8_ffma_aligna4"),
    (Precision.TF32, YES, "sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x256x32_execute"),
    (Precision.BF16, YES, "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tile"),
    (Precision.FP64, YES, "sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize128x64x16_tensor16x8x8"),
    (Precision.FP32, NO, "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(P)"),
    (
        Precision.TF32,
        YES,
        "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_nn_align4>(P)",
    ),
    (
        Precision.BF16,
        YES,
        "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x256>(P)",
    ),
    (
        Precision.TF32,
        YES,
        "void cutlass::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_256x64>()",
    ),
    (Precision.FP64, YES, "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x32_16x4_tn>(P)"),
    (Precision.FP16, YES, "void cutlass::Kernel2<cutlass_80_tensorop_h16816gemm_256x128_nn>(P)"),
    (Precision.BF16, YES, "_ZN17cutlass__5x_cudnn6KernelINS_10bfloat16_tENS_11MmaTensorOpE"),
    (Precision.BF16, None, "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256EEvPT0_"),
    (None, YES, "_ZN2ck6device28kernel_grouped_conv_fwd_xdl_"),
    (Precision.FP16, YES, "volta_h884gemm_128x64_tn"),
    (Precision.FP16, YES, "ampere_fp16_s16816gemm_fp16_128x64_tn"),
    (Precision.FP32, NO, "volta_sgemm_64x64_tn"),
    (Precision.FP32, NO, "cudnn_infer_volta_scudnn_128x64_relu_xregs_large_nn_v1"),
    (Precision.FP32, NO, "void implicit_convolve_sgemm<float, float, 1024, 6>(int, float const*)"),
    (Precision.FP32, NO, "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(P)"),
    (Precision.BF16, YES, "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x32x64_MI16x16x1_SN"),
    (Precision.FP32, YES, "Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT16x16x128_MI16x16x1_SN"),
    (Precision.BF16, YES, "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x64x32"),
    (
        Precision.FP32,
        YES,
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80(AttentionKernel<float>::Params)",
    ),
    (Precision.FP32, NO, "fmha_cutlassF_f32_aligned_64x64_rf_sm70(AttentionKernel<float>::Params)"),
    (None, YES, "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7"),
    (
        Precision.BF16,
        YES,
        "void pytorch_flash::flash_fwd_kernel<Traits<64, cutlass::bfloat16_t>>(P)",
    ),
    (Precision.FP8, YES, "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2"),
    (
        Precision.BF16,
        NO,
        "void cublasLt::splitKreduce_kernel<32, int, __nv_bfloat16, float>(float*)",
    ),
    (
        Precision.FP64,
        None,
        "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<double>>()",
    ),
    (None, None, "void at::native::vectorized_gather_kernel<16, long>(char*, long)"),
    (None, None, "my_kernel"),
]


@pytest.mark.parametrize(("precision", "units", "name"), NAMES)
def test_a_kernel_name_spells_its_format(precision, units, name):
    assert precision_of_kernel_name(name) is precision
    assert matrix_units_of_kernel_name(name) is units


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        (Precision.BF16, "c10::BFloat16"),
        (Precision.FP16, "c10::Half"),
        (Precision.FP32, "float"),
        (Precision.FP64, "double"),
        (Precision.FP8, "c10::Float8_e4m3fn"),
        (Precision.INTEGER, "long int"),
        (Precision.INTEGER, "unsigned char"),
        (Precision.INT8, "c10::quint8"),
        (None, "Scalar"),
    ],
)
def test_types_as_frameworks_spell_them(precision, dtype):
    assert precision_of_dtype(dtype) is precision


def test_alignment_is_part_of_a_kernel_name():
    assert alignment_of_kernel_name("cutlass_75_tensorop_bf16_s1688gemm_bf16_nt_align1") == 1
    assert alignment_of_kernel_name("sm80_xmma_gemm_ffma_aligna4_alignc4_execute") == 4
    assert alignment_of_kernel_name("nvjet_sm90_tst_256x128") is None


def codes(builder):
    answer = precision_of_device_ops(builder.trace())
    return answer.precision.tolist(), answer.matrix_units.tolist()


def test_operator_types_fill_in_but_float_does_not_tell_tf32_from_fp32():
    b = TraceBuilder()
    for at, dtype in enumerate(("c10::BFloat16", "float")):
        b.op("aten::mm", at * 100, 50, dtypes=f'["", "{dtype}"]')
        b.launch(at * 100 + 1, 5, "triton_tem_fused_mm_0", at * 100 + 20, 5)
    b.op("aten::add", 300, 50, dtypes='["float"]')
    b.launch(301, 5, "unheard_of", 320, 5)
    assert codes(b) == ([Precision.BF16, UNKNOWN, Precision.FP32], [UNKNOWN, UNKNOWN, NO])


def test_copies_have_no_format():
    b = TraceBuilder()
    b.copy(0, 5, "Memcpy", 10, 20, size=4, source=MemoryKind.PINNED, target=MemoryKind.DEVICE)
    assert codes(b) == ([UNKNOWN], [UNKNOWN])


def test_nothing_launched_has_no_format():
    assert codes(TraceBuilder()) == ([], [])
