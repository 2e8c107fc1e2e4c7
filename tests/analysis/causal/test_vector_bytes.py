"""What kernels without products move."""

import numpy as np

from builders import TraceBuilder
from pinchpoint.analysis.causal.vector_bytes import vector_bytes

ADD = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<float>,"
    " std::array<char*, 3ul> >(int)"
)


def test_products_copies_and_unknown_kernels_have_none():
    b = TraceBuilder()
    grid = {"grid": "[4000,1,1]", "block": "[128,1,1]"}
    b.launch(0, 5, ADD, 100, 50_000, **grid)
    b.op("aten::mm", 10, 50, shapes="[[64,64],[64,64]]", dtypes='["float","float"]')
    b.launch(20, 5, "ampere_sgemm_128x128_nn", 100_000, 50_000)
    b.launch(30, 5, "somebody_s_kernel", 200_000, 50_000)
    found = vector_bytes(b.trace())
    assert found[0] == 3 * 4 * 4000 * 128 * 8
    assert np.isnan(found[1:]).all()
