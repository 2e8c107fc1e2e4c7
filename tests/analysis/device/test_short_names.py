import pytest

from pinchpoint.analysis.device.short_names import short_kernel_name

AT = "at::native::"
CASES = {
    "nvjet_sm90_tst_64x8_64x16_TNT": "nvjet_sm90_tst_64x8_64x16_TNT",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_nt>(P)": "cutlass_80_simt_sgemm_nt",
    "void cudnn::cnn::wgrad_alg0_engine<float, 128>(int, int)": "wgrad_alg0_engine",
    f"void {AT}(anonymous namespace)::CatArrayBatchedCopy<int>(int)": "CatArrayBatchedCopy",
    f"void {AT}vectorized_elementwise_kernel<4, {AT}CUDAFunctor_add<float>, std::array<char*, 3ul>"
    f" >(int, {AT}CUDAFunctor_add<float>)": "elementwise: CUDAFunctor_add",
    f"void {AT}elementwise_kernel<4, {AT}BUnaryFunctor<int, {AT}binary_internal::MulFunctor<float>"
    " >, X>(int)": "elementwise: MulFunctor",
    f"void {AT}reduce_kernel<512, 1, {AT}ReduceOp<float, {AT}MeanOps<float, float>, unsigned int>"
    " >(X)": "reduce: MeanOps",
    "void ck_tile::kentry<1, ck_tile::BatchedGemmKernel<Y<8, 4> >, X>(X)": "BatchedGemmKernel",
    "void kentry<(int)2, 4>(P)": "kentry",
    "void (anonymous namespace)::softmax_warp<float, 10>(float*)": "softmax_warp",
    "std::enable_if<(((8)>(0))), void>::type vllm::rms_norm<c10::BFloat16>(int)": "rms_norm",
    "ncclDevKernel_Sum_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "ncclDevKernel_Sum_RING_LL",
    "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256EEvPT0_": "add_rmsnorm_quant_kernel",
    "_ZN2ck6device12_GLOBAL__N_123kernel_grouped_conv_fwdINS_3FooEEEvv": "kernel_grouped_conv_fwd",
    "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_3FooEEEEvv": "Rmsnorm2dFwd",
    "_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel11Convolution": "Convolution",
    "_Z9my_kernelPfi": "my_kernel",
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int>(X<int>)": "gemvx::kernel",
    "_ZN8internal5gemvx6kernelIiEEvv": "gemvx::kernel",
    "void kernel(int)": "kernel",
    "_ZN9999x": "_ZN9999x",
    "_Z": "_Z",
    "x" * 100: "x" * 59 + "…",
    "": "",
    "<<<((": "<<<((",
}


@pytest.mark.parametrize(("name", "short"), CASES.items())
def test_a_short_name_says_what_is_done(name, short):
    assert short_kernel_name(name) == short
