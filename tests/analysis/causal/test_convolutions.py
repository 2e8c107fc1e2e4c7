"""Convolutions of recorders that keep neither values nor types of inputs."""

import numpy as np
import pytest

from builders import TraceBuilder
from pinchpoint.analysis.causal.limits import MEMORY_REACHED, PRODUCTS_REACHED, needed_limits
from pinchpoint.hardware import find_spec
from pinchpoint.trace import Device

FORWARD, WEIGHT = "aten::cudnn_convolution", "aten::cudnn_convolution_backward_weight"
X, W, OUT = (32, 64, 56, 56), (128, 64, 3, 3), (32, 128, 28, 28)
FP32 = "volta_scudnn_128x64_relu_interior_nn_v1"
V100S = find_spec("Tesla V100S-PCIE-32GB")
NAMED, NAMELESS = Device(0, "Tesla V100S-PCIE-32GB"), Device(0, multiprocessors=80)


def text(*shapes):
    return "[" + ",".join(str(list(shape)).replace(" ", "") for shape in shapes) + "]"


def limits(*triples, name=FORWARD, shapes=(X, W), kernel=FP32, device=NAMED):
    """The limit of one call in ns, beside backward calls of these tensors."""
    b = TraceBuilder(devices=(device,))
    b.op(name, 0, 50, shapes=text(*shapes))
    b.launch(5, 5, kernel, 100, 10**9)
    for at, triple in enumerate(triples):
        b.op("aten::cudnn_convolution_backward", 1_000 * (at + 1), 50, shapes=text(*triple))
    return needed_limits(b.trace()).limit_ns[0]


FLOPS = 2 * np.prod(OUT) * np.prod(W[1:])
COMPUTING_NS = FLOPS / (V100S.peak_flop_per_s("fp32") * PRODUCTS_REACHED) * 1e9


def test_the_output_of_a_forward_call_is_what_its_backward_call_says():
    assert limits((X, OUT, W)) == pytest.approx(COMPUTING_NS)


def test_a_device_without_a_name_has_the_limits_of_the_fastest_that_its_kernels_fit():
    assert limits((X, OUT, W), device=NAMELESS) == pytest.approx(COMPUTING_NS)
    assert np.isnan(limits((X, OUT, W), device=NAMELESS, kernel="implicit_gemm<float>"))


def test_the_gradient_of_weights_has_those_of_the_call_around_it():
    assert limits((X, OUT, W), name=WEIGHT, shapes=((), OUT, X)) == pytest.approx(COMPUTING_NS)


def test_convolutions_that_differ_in_what_is_not_recorded_stay_unknown():
    one = (128, 64, 1, 1)
    assert np.isnan(limits((X, OUT, W), (X, OUT, one), name=WEIGHT, shapes=((), OUT, X)))
    assert np.isnan(limits((X, OUT, W), (X, (32, 128, 56, 56), W)))
    assert np.isnan(limits())


def test_without_types_bytes_are_those_of_the_kernels_format():
    add, size = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<{}> >", X
    shapes = (size, size, ())
    known = limits(name="aten::add", shapes=shapes, kernel=add.format("float"))
    bytes_ = 3 * 4 * np.prod(size)
    rate = V100S.memory_bytes_per_s * MEMORY_REACHED
    assert known == pytest.approx(bytes_ / rate * 1e9, rel=0.01)
    assert np.isnan(limits(name="aten::add", shapes=shapes, kernel="somebodys_add"))
