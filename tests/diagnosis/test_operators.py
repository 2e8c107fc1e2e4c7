import re

import pytest

from pinchpoint.diagnosis.operators import known, table


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
    ],
)
def test_the_first_entry_that_fits(operator, kernel, word):
    assert word in known(operator, kernel).why


def test_nothing_is_known_of_most():
    assert known("aten::mm", "gemm") is None
