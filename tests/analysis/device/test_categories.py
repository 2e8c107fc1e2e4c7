import pytest

from builders import TraceBuilder
from pinchpoint.analysis.device.categories import category_of_device_ops
from pinchpoint.analysis.device.kernel_names import Category
from pinchpoint.trace import DeviceKind, MemoryKind

CUTLASS = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(int)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>()"


def categories(builder):
    return [Category(code) for code in category_of_device_ops(builder.trace())]


@pytest.mark.parametrize(
    ("operator", "kernel", "category"),
    [
        ("aten::mm", CUTLASS, Category.GEMM),
        ("aten::cudnn_convolution", CUTLASS, Category.CONVOLUTION),
        ("aten::_scaled_dot_product_attention_math", CUTLASS, Category.ATTENTION),
        ("aten::convolution_backward", ADD, Category.ELEMENTWISE),
        ("Optimizer.step#AdamW.step", ADD, Category.OPTIMIZER),
        ("Optimizer.step#Muon.step", CUTLASS, Category.GEMM),
        ("aten::mm", "anonymous", Category.GEMM),
        ("my::op", "anonymous", Category.OTHER),
    ],
)
def test_the_operator_decides_where_the_name_leaves_room(operator, kernel, category):
    b = TraceBuilder()
    b.op(operator, 0, 100)
    b.launch(10, 5, kernel, 20, 30)
    assert categories(b) == [category]


def test_the_claiming_operator_may_be_further_out():
    b = TraceBuilder()
    b.annotation("Optimizer.step#SGD.step", 0, 100)
    b.op("aten::_foreach_add_", 5, 50)
    b.op("aten::add_", 6, 40)
    b.launch(10, 5, ADD, 20, 30)
    b.op("aten::add", 200, 50)
    b.launch(210, 5, ADD, 220, 30)
    assert categories(b) == [Category.OPTIMIZER, Category.ELEMENTWISE]


@pytest.mark.parametrize(
    ("source", "target", "category"),
    [
        (MemoryKind.PAGEABLE, MemoryKind.DEVICE, Category.COPY_H2D),
        (MemoryKind.PINNED, MemoryKind.DEVICE, Category.COPY_H2D),
        (MemoryKind.DEVICE, MemoryKind.HOST, Category.COPY_D2H),
        (MemoryKind.DEVICE, MemoryKind.DEVICE, Category.COPY_D2D),
        (MemoryKind.DEVICE, MemoryKind.PEER, Category.COPY_P2P),
        (MemoryKind.HOST, MemoryKind.HOST, Category.COPY_OTHER),
    ],
)
def test_copies_are_judged_by_their_ends(source, target, category):
    b = TraceBuilder()
    b.copy(0, 5, "Memcpy", 10, 20, size=64, source=source, target=target)
    assert categories(b) == [category]


def test_what_the_file_calls_a_collective_or_a_memset_is_one():
    b = TraceBuilder()
    b.launch(0, 5, "custom", 10, 20, kind=DeviceKind.COLLECTIVE)
    b.launch(6, 5, "Memset (Device)", 40, 20, kind=DeviceKind.MEMSET)
    assert categories(b) == [Category.COLLECTIVE, Category.MEMSET]


def test_without_device_operations_there_are_no_categories():
    assert len(category_of_device_ops(TraceBuilder().trace())) == 0
    assert len(category_of_device_ops(TraceBuilder().trace(device_ops=None))) == 0


def test_kernels_without_any_host_side_keep_their_name():
    b = TraceBuilder()
    b.launch(0, 5, CUTLASS, 10, 20)
    assert [Category(c) for c in category_of_device_ops(b.trace(host_ops=None))] == [Category.GEMM]
