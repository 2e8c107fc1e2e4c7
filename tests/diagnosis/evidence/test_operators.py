import re

import pytest

from pinchpoint.diagnosis.evidence.operators import known, table


def test_entries_are_whole():
    for entry in table():
        assert entry.operators or entry.kernels
        for pattern in entry.operators + entry.kernels:
            re.compile(pattern)
        assert entry.why[0].islower() or entry.why[0].isdigit()
        assert entry.instead[0].isupper()
        assert not entry.why.endswith(".")
        assert not entry.instead.endswith(".")
        assert entry.source


@pytest.mark.parametrize(
    ("operator", "kernel", "word"),
    [
        ("aten::_index_put_impl_", "indexing_backward_kernel<float>", "sorted"),
        ("aten::_index_put_impl_", "index_put_kernel", "by index"),
        ("aten::index_add_", "indexFuncLargeIndex", "atomic"),
        ("aten::index", "index_elementwise_kernel", "one by one"),
        ("aten::linalg_qr", "geqr2", "batch"),
        ("aten::miopen_convolution", "naive_conv_ab_nonpacked", "generic"),
        ("aten::sort", "", "radix"),
        ("aten::sort", "at::native::radixSortKVInPlace<-2>", "one block"),
        ("aten::cumsum", "tensor_kernel_scan_outer_dim<float>", "serial"),
        ("aten::native_layer_norm_backward", "GammaBetaBackwardCUDAKernel", "few blocks"),
        ("aten::addmm", "cutlass_80_simt_sgemm_128x128", "matrix units"),
        ("aten::mm", "cutlass_75_tensorop_bf16_s1688gemm_64x64_nn_align1", "16 bytes"),
        ("aten::_cudnn_rnn_flatten_weight", "", "gathered"),
        ("aten::_cudnn_rnn", "elemWiseRNNcell", "depend"),
        ("vllm::moe_forward", "", "expert"),
        ("", "input_transpose_fusion", "layouts"),
    ],
)
def test_the_first_entry_that_fits(operator, kernel, word):
    assert word in known(operator, kernel).why


def test_nothing_is_known_of_most():
    assert known("aten::mm", "gemm") is None
    assert known("aten::mm", "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT") is None
    assert known("aten::convolution_backward", "sm90_xmma_dgrad_implicit_gemm") is None
