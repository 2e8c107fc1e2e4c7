"""Limits of what has no operator with shapes, and of what is no kernel."""

import numpy as np
import pytest

from builders import TraceBuilder
from pinchpoint.analysis.causal.kernel_bytes import CHUNK, bytes_by_grid
from pinchpoint.analysis.causal.limits import (
    KERNEL_START_NS,
    MEMORY_REACHED,
    RANDOM_ROWS_REACHED,
    needed_limits,
)
from pinchpoint.analysis.causal.transfers import BUS_REACHED, LINK_REACHED
from pinchpoint.analysis.costs import OperatorCall, cost_of
from pinchpoint.hardware import find_spec
from pinchpoint.trace import DeviceKind, MemoryKind

NAME = "NVIDIA H100 80GB HBM3"
H100 = find_spec(NAME)
ADD = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>,"
    " std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>)"
)
COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::float16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}> >(int)"
)
ADAM = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous"
    " namespace)::FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4> >(int)"
)
OLD_ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>,"
    " at::detail::Array<char*, 3> >(int, at::native::AddFunctor<float>)"
)
PUT = (
    "void at::native::index_elementwise_kernel<128, 4, at::native::index_copy_kernel_impl<"
    "at::native::OpaqueType<2> >(at::TensorIterator&, long, long, long)::{lambda(int)#1}>(long)"
)
TAKE = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long)"


@pytest.mark.parametrize(
    ("name", "grid", "block", "expected"),
    [
        pytest.param(ADD, 1_000, 128, 3 * 2 * 1_000 * 128 * 8, id="three tensors of bfloat16"),
        pytest.param(COPY, 1_000, 128, 2 * 4 * 1_000 * 128 * 4, id="strided, read and written"),
        pytest.param(ADAM, 320, 512, 7 * 4 * 320 * CHUNK, id="four lists read, three written"),
        pytest.param(TAKE, 5_000, 32, 2 * 16 * 32 * 5_000, id="rows taken"),
        pytest.param(OLD_ADD, 1_000, 64, 3 * 4 * 1_000 * 64 * 4, id="before PyTorch 2.6"),
        pytest.param(PUT, 1_000, 128, 2 * 2 * 1_000 * 128 * 4, id="rows put, of 16 bits"),
        pytest.param(
            "cupy_multiply__float32_float64_bool", 1_000, 128, 13 * 128_000, id="operands of CuPy"
        ),
        pytest.param("cupy_sum", 1_000, 128, None, id="CuPy says no types"),
        pytest.param("nvjet_sm90_tst_64x8", 100, 128, None, id="a product: unknown"),
    ],
)
def test_bytes_by_grid(name, grid, block, expected):
    b = TraceBuilder()
    b.launch(0, 5, name, 10, 100, grid=f"[{grid},1,1]", block=f"[{block},1,1]")
    found, by_index = bytes_by_grid(b.trace(), np.ones(1, np.bool_))
    assert np.isnan(found[0]) if expected is None else found[0] == expected
    assert by_index[0] == (name in (TAKE, PUT))


def test_each_launch_of_a_lookup_needs_its_own_rows():
    """``F.embedding`` of many rows launches one kernel for each few millions of them."""
    b = TraceBuilder()
    b.op("aten::gather", 0, 500)
    for at in range(4):
        b.launch(
            10 + 100 * at, 5, TAKE, 1_000 + at * 10**7, 10**7, grid="[50000,1,1]", block="[256,1,1]"
        )
    rate = H100.memory_bytes_per_s * RANDOM_ROWS_REACHED
    needs = 2 * 16 * 256 * 50_000 / rate * 1e9
    assert needed_limits(b.trace()).limit_ns.tolist() == pytest.approx([needs] * 4)


def test_copies_and_fills_at_the_rate_of_their_path():
    b = TraceBuilder()
    size, took = 1_000_000_000, 10**9
    given = {
        "to the device": (MemoryKind.PAGEABLE, MemoryKind.DEVICE),
        "within it": (MemoryKind.DEVICE, MemoryKind.DEVICE),
    }
    for at, (name, (source, target)) in enumerate(given.items()):
        b.launch(
            at, 5, name, 10 + at * took, took, kind=DeviceKind.COPY, bytes=size,
            from_memory=source, to_memory=target,
        )  # fmt: skip
    b.launch(9, 5, "fill", 10 + 3 * took, took, kind=DeviceKind.MEMSET, bytes=size)
    limit = needed_limits(b.trace()).limit_ns / 1e9
    memory = H100.memory_bytes_per_s * MEMORY_REACHED
    expected = [size / H100.pcie_bytes_per_s / BUS_REACHED, 2 * size / memory, size / memory]
    assert limit.tolist() == pytest.approx(expected)


def test_a_collective_takes_what_its_traffic_needs():
    b = TraceBuilder()
    args = '{"In msg nelems": 250000000, "dtype": "Float", "Group size": 2}'
    b.launch(
        0, 5, "ncclDevKernel_AllReduce", 10, 10**9, kind=DeviceKind.COLLECTIVE,
        collective="allreduce", collective_args=args,
    )  # fmt: skip
    limits = needed_limits(b.trace())
    expected = 1e9 / (H100.link_bytes_per_s / 2 * LINK_REACHED) * 1e9  # 2 (n - 1) / n is 1
    assert limits.limit_ns[0] == pytest.approx(expected)


def test_a_recurrent_layer_takes_its_steps_in_turn():
    shapes = ((120, 128, 300), ((1536, 300), (1536, 512), (1536,), (1536,)), ())
    values = ("", "", "4", "", "", "", "3", "512", "0", "1", "False")
    cost = cost_of(OperatorCall("aten::_cudnn_rnn", shapes, ("float", "TensorList"), values))
    assert cost.flops == 2 * 120 * 128 * (1536 * 300 + 1536 * 512)
    assert cost.in_turn == 120


def test_a_gradient_of_the_weights():
    shapes = ((), (8, 64, 32, 32), (8, 32, 32, 32))
    values = ("[64, 32, 3, 3]",)
    call = OperatorCall("aten::cudnn_convolution_backward_weight", shapes, ("", "float"), values)
    assert cost_of(call).flops == 2 * 8 * 32 * 32 * 64 * 32 * 9


def test_no_kernel_needs_less_than_its_start():
    """What it does is not known, and it takes no longer than one that does nothing may."""
    b = TraceBuilder()
    b.launch(0, 5, "nvjet_sm90_tst_64x8", 10, KERNEL_START_NS)
    b.launch(10, 5, "nvjet_sm90_tst_64x8", 50_000, KERNEL_START_NS + 1)
    found = needed_limits(b.trace())
    assert found.limit_ns[0] == KERNEL_START_NS
    assert np.isnan(found.limit_ns[1])
    assert np.isnan(found.bytes).all()


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes", "sent"),
    [
        pytest.param("record_param_comms", "[[1000000],[],[]]", '["float","Scalar","Scalar"]', 2e6,
                     id="half of what a rank has"),
        pytest.param("c10d::_allgather_base_", "[[8000000],[1000000],[]]", '["float","float",""]',
                     28e6, id="what the others have"),
        pytest.param("vllm::all_reduce", "[[1000000],[]]", '["float",""]', 4e6, id="all of it"),
        pytest.param("record_param_comms", "[[],[],[]]", '["TensorList","",""]', None,
                     id="a list of tensors: unknown"),
        pytest.param("aten::mul", "[[1000000],[]]", '["float",""]', None, id="no collective"),
    ],
)  # fmt: skip
def test_collectives_that_say_nothing_have_the_size_of_their_operators(name, shapes, dtypes, sent):
    b = TraceBuilder()
    b.op(name, 0, 50, shapes=shapes, dtypes=dtypes)
    b.launch(10, 5, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", 100, 10**9,
             kind=DeviceKind.COLLECTIVE)  # fmt: skip
    (limit,) = needed_limits(b.trace()).limit_ns.tolist()
    if sent is None:
        assert np.isnan(limit)
    else:
        assert limit == pytest.approx(sent / (H100.link_bytes_per_s / 2 * LINK_REACHED) * 1e9)
