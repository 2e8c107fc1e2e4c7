import pytest

from pinchpoint.analysis.device.kernel_names import (
    LABELS,
    Category,
    category_claimed_by_operator,
    category_hinted_by_operator,
    category_of_kernel_name,
)

KERNELS = [
    (Category.GEMM, "void mul_mat_q<(ggml_type)12, 128, false>(char const*, int const*)"),
    (Category.GEMM, "void mul_mat_vec_dq_q6_K<32, 1>(void const*, void const*)"),
    (Category.GEMM, "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"),
    (Category.GEMM, "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(int)"),
    (Category.GEMM, "sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x256x32_execute_kernel"),
    (Category.GEMM, "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x32x64_MI16x16x1_SN"),
    (Category.GEMM, "void cublasLt::splitKreduce_kernel<32, 16, int, float>(int)"),
    (Category.GEMM, "volta_sgemm_64x64_tn"),
    (Category.GEMM, "triton_tem_fused_mm_3"),
    (Category.CONVOLUTION, "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc"),
    (Category.CONVOLUTION, "void cudnn::winograd_nonfused::winogradForwardData4x4<float>(int)"),
    (Category.CONVOLUTION, "void implicit_convolve_sgemm<float, float, 1024, 6, 7>(int, int)"),
    (Category.CONVOLUTION, "void cudnn::detail::dgrad_engine<float, 512, 6, 5>(int)"),
    (Category.CONVOLUTION, "cudnn_infer_volta_scudnn_128x64_relu_xregs_large_nn_v1"),
    (Category.CONVOLUTION, "igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt64x64x32"),
    (Category.CONVOLUTION, "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23Implicit"),
    (Category.ATTENTION, "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7"),
    (Category.ATTENTION, "fmha_cutlassF_f32_aligned_64x64_rf_sm80(Params)"),
    (Category.ATTENTION, "void pytorch_flash::flash_fwd_kernel<Traits>(int)"),
    (Category.ATTENTION, "attn_fwd"),
    (Category.ATTENTION, "kernel_unified_attention_2d"),
    (Category.NORMALISATION, "void cudnn::bn_bw_1C11_kernel_new<float, float>(float)"),
    (
        Category.NORMALISATION,
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<f>",
    ),
    (Category.NORMALISATION, "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256E"),
    (Category.NORMALISATION, "void flashinfer::norm::FusedAddRMSNormKernel<8u, __half>(int)"),
    (
        Category.SOFTMAX,
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>(int)",
    ),
    (Category.SOFTMAX, "void at::native::nll_loss_forward_reduce_cuda_kernel_2d<float>(int)"),
    (Category.SOFTMAX, "triton_red_fused__log_softmax_mm_prepare_softmax_online_18"),
    (Category.ELEMENTWISE, "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add>()"),
    (Category.ELEMENTWISE, "triton_poi_fused_add_mul_0"),
    (Category.ELEMENTWISE, "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long)"),
    (Category.REDUCTION, "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>()"),
    (Category.REDUCTION, "triton_per_fused_sum_1"),
    (Category.ELEMENTWISE, "triton_poi_fused_convolution_relu_3"),
    (Category.DATA_MOVEMENT, "triton_poi_fused__to_copy_2"),
    (Category.NORMALISATION, "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0"),
    (Category.REDUCTION, "triton_per_fused__unsafe_view_add_clone_permute_sum_view_16"),
    (Category.OTHER, "triton__0d1d2d3d"),
    (Category.ELEMENTWISE, "void at::native::elementwise_kernel<128, masked_fill_kernel(int)>()"),
    (Category.EMBEDDING, "void fbgemm_gpu::permute_2D_data_kernel<false, int>(int)"),
    (Category.EMBEDDING, "void moe::dev::finalize::finalizeKernel<cutlass::bfloat16_t>(int)"),
    (Category.POOLING, "void at::native::(anonymous namespace)::max_pool_forward_nchw<float>()"),
    (Category.EMBEDDING, "split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel"),
    (Category.EMBEDDING, "void at::native::vectorized_gather_kernel<16, long>(char*)"),
    (Category.SORTING, "void cub::DeviceRadixSortHistogramKernel<int>(int*)"),
    (Category.DATA_MOVEMENT, "void cudnn::ops::nchwToNhwcKernel<float, float>(int)"),
    (Category.DATA_MOVEMENT, "void at::native::(anonymous namespace)::CatArrayBatchedCopy<int>()"),
    (Category.OPTIMIZER, "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<f>>()"),
    (Category.COLLECTIVE, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)"),
    (
        Category.COLLECTIVE,
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16>()",
    ),
    (Category.MEMSET, "void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>>()"),
    (Category.COPY_D2D, "__amd_rocclr_copyBuffer"),
    (Category.ELEMENTWISE, "loop_select_fusion_1"),
    (Category.REDUCTION, "input_reduce_fusion"),
    (Category.DATA_MOVEMENT, "input_transpose_fusion"),
    (Category.OTHER, "fusion_31"),
    (Category.OTHER, "my_kernel"),
]


@pytest.mark.parametrize(("category", "name"), KERNELS)
def test_a_kernel_name_speaks_of_its_work(category, name):
    assert category_of_kernel_name(name) is category


@pytest.mark.parametrize(
    ("category", "name"),
    [
        (Category.CONVOLUTION, "aten::cudnn_convolution"),
        (Category.CONVOLUTION, "aten::convolution_backward"),
        (Category.ATTENTION, "aten::_scaled_dot_product_attention_math"),
        (Category.OPTIMIZER, "Optimizer.step#AdamW.step"),
        (Category.NORMALISATION, "aten::native_layer_norm_backward"),
        (None, "aten::mm"),
        (None, "aten::add"),
    ],
)
def test_some_operators_claim_what_runs_inside_them(category, name):
    assert category_claimed_by_operator(name) is category


def test_an_operator_hints_at_a_kernel_that_says_nothing():
    assert category_hinted_by_operator("aten::mm") is Category.GEMM
    assert category_hinted_by_operator("aten::sum") is Category.REDUCTION
    assert category_hinted_by_operator("my::op") is None


def test_every_category_has_an_id_and_a_label():
    assert set(LABELS) == set(Category)
    assert Category.COPY_H2D.id == "copy-h2d"
    assert len({c.label for c in Category}) == len(Category)
