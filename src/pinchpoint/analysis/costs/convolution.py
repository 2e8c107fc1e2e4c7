"""Convolutions: two FLOPs for each weight that each output element sees."""

from typing import NamedTuple

from pinchpoint.analysis.costs.call import Cost, OperatorCall
from pinchpoint.analysis.host.input_arguments import Shape, elements


class _Where(NamedTuple):
    """At which input each argument of a spelling of convolution is; -1: it has none."""

    stride: int
    padding: int
    dilation: int
    transposed: int = -1
    output_padding: int = -1


# Positions in the schemas of ATen's native_functions.yaml; below 0: no such input.
_FORWARD = {
    "aten::cudnn_convolution": _Where(3, 2, 4),
    "aten::cudnn_convolution_relu": _Where(3, 4, 5),
    "aten::cudnn_convolution_add_relu": _Where(5, 6, 7),
    "aten::cudnn_convolution_transpose": _Where(4, 2, 5, -2, 3),
    "aten::miopen_convolution": _Where(4, 3, 5),
    "aten::miopen_depthwise_convolution": _Where(4, 3, 5),
    "aten::miopen_convolution_transpose": _Where(5, 3, 6, -2, 4),
    "aten::mkldnn_convolution": _Where(4, 3, 5),
    "aten::_conv_depthwise2d": _Where(4, 5, 6),
    "aten::conv_depthwise3d": _Where(4, 5, 6),
    "aten::_slow_conv2d_forward": _Where(4, 5, -1),
    "aten::slow_conv3d_forward": _Where(4, 5, -1),
    "aten::slow_conv_dilated2d": _Where(4, 5, 6),
    "aten::convolution": _Where(3, 4, 5, 6, 7),
    "aten::convolution_overrideable": _Where(3, 4, 5, 6, 7),
    "aten::_convolution": _Where(3, 4, 5, 6, 7),
    "aten::conv1d": _Where(3, 4, 5),
    "aten::conv2d": _Where(3, 4, 5),
    "aten::conv3d": _Where(3, 4, 5),
}
_ALWAYS_TRANSPOSED = -2  # no input says so, the operator's name does
FORWARD_NAMES = tuple(_FORWARD)

# convolution_backward(grad, input, weight, bias_sizes, stride, padding, dilation, transposed,
#                      output_padding, groups, output_mask)
_GRAD, _INPUT, _WEIGHT, _TRANSPOSED, _MASK = 0, 1, 2, 7, 10


def forward(call: OperatorCall) -> Cost | None:
    """Any spelling of a forward convolution; needs the recorded stride and padding."""
    x, weight, where = call.shape(0), call.shape(1), _FORWARD[call.name]
    transposed = where.transposed == _ALWAYS_TRANSPOSED or (
        where.transposed >= 0 and call.flag(where.transposed)
    )
    if x is None or weight is None or len(x) != len(weight):
        return None
    out = _output(call, x, weight, where, transposed=transposed)
    return None if out is None else _forward(call, x, weight, out, transposed=transposed)


# Matrix units take operands of 16 bytes, 8 elements of 16 bits. Of windows over fewer channels H100
# and H200 reach 0.05 to 0.12 of their peak (weights of first layers, 3 and 4 channels, five
# programs): their elements lie apart, and are gathered one by one.
FEWEST_CHANNELS = 8


def of_few_channels(call: OperatorCall) -> bool:
    """Whether a window goes over so few channels, in or out, that matrix units are not filled."""
    if call.name == "aten::convolution_backward":
        x, weight = call.shape(_INPUT), call.shape(_WEIGHT)
    elif call.name in FORWARD_NAMES:
        x, weight = call.shape(0), call.shape(1)
    else:
        return False
    if x is None or weight is None or len(x) != len(weight) or elements(weight[2:]) == 1:
        return False
    return x[1] == weight[1] and min(weight[:2]) < FEWEST_CHANNELS


def depthwise_window(call: OperatorCall) -> Shape | None:
    """Sizes of the window of a forward convolution whose groups have one channel each; else None.

    Matrix units have nothing to multiply there: all but a diagonal would be zeros, and libraries
    compute it without them (pytorch/pytorch#22302, NVIDIA/cutlass#615).
    """
    if call.name not in FORWARD_NAMES:
        return None
    x, weight = call.shape(0), call.shape(1)
    if x is None or weight is None or not len(x) == len(weight) > 2:
        return None
    return tuple(weight[2:]) if weight[1] == 1 and weight[0] % x[1] == 0 and x[1] > 1 else None


def forward_into(call: OperatorCall, out: Shape) -> Cost | None:
    """The same where another call shows the output, and neither stride nor padding is recorded."""
    x, weight, where = call.shape(0), call.shape(1), _FORWARD[call.name]
    if x is None or weight is None or not len(x) == len(weight) == len(out):
        return None
    if where.transposed != -1:  # by a value that is not recorded, or by name: rare
        return None
    return _forward(call, x, weight, out, transposed=False)


def _forward(call: OperatorCall, x: Shape, weight: Shape, out: Shape, *, transposed: bool) -> Cost:
    moved = call.bytes(0) + call.bytes(1) + elements(out) * call.element_bytes(0)
    return Cost(_flops(x, weight, out, transposed=transposed), moved, matrix=True)


def backward(call: OperatorCall) -> Cost | None:
    """``aten::convolution_backward``: as much again for each gradient that is asked for."""
    grad, x, weight = call.shape(_GRAD), call.shape(_INPUT), call.shape(_WEIGHT)
    if grad is None or x is None or weight is None or len(x) != len(weight):
        return None
    mask = call.flags(_MASK) if call.value(_MASK) else (True, True, False)
    each = _flops(x, weight, grad, transposed=call.flag(_TRANSPOSED))
    products = sum(mask[:2])
    moved = call.bytes(_GRAD) * products
    moved += (call.bytes(_WEIGHT) + call.bytes(_INPUT)) * products  # one read, the other written
    return Cost(each * products, moved, matrix=True)


# (sizes, grad, input) and (sizes, grad, weight): one gradient each, up to PyTorch 1.10.
GRADIENTS = tuple(
    f"aten::{backend}_convolution_backward_{what}"
    for backend in ("cudnn", "miopen")
    for what in ("weight", "input")
)


def gradient(call: OperatorCall, weights: Shape | None = None) -> Cost | None:
    """One gradient of a convolution; that of the weights needs their sizes, recorded or given."""
    grad, other, sizes = call.shape(1), call.shape(2), call.integers(0) or weights
    to_input = call.name.endswith("input")
    weight = other if to_input else sizes
    if grad is None or other is None or weight is None or len(weight) != len(grad):
        return None
    result = sizes if to_input else weight
    written = elements(result) * call.element_bytes(1) if result else 0
    flops = 2 * grad[0] * elements(grad[2:]) * elements(weight)
    return Cost(flops, call.bytes(1) + call.bytes(2) + written, matrix=True)


def _flops(x: Shape, weight: Shape, out: Shape, *, transposed: bool) -> int:
    # weight is (out, in / groups, *kernel), or (in, out / groups, *kernel) when transposed
    places = elements(x[2:]) if transposed else elements(out[2:])
    return 2 * x[0] * places * elements(weight)


def _output(
    call: OperatorCall, x: Shape, weight: Shape, where: _Where, *, transposed: bool
) -> Shape | None:
    spatial = len(x) - 2
    stride = _each(call, where.stride, spatial, 1)
    padding = _each(call, where.padding, spatial, 0)
    dilation = _each(call, where.dilation, spatial, 1)
    if stride is None or padding is None or dilation is None or min(stride) < 1:
        return None
    sizes = []
    extra = _each(call, where.output_padding, spatial, 0) or (0,) * spatial
    for i in range(spatial):
        reach = dilation[i] * (weight[2 + i] - 1) + 1
        if transposed:
            sizes.append((x[2 + i] - 1) * stride[i] - 2 * padding[i] + reach + extra[i])
        else:
            sizes.append((x[2 + i] + 2 * padding[i] - reach) // stride[i] + 1)
    if min(sizes, default=1) < 1:
        return None
    channels = weight[1] if transposed else weight[0]
    return (x[0], channels, *sizes)


def _each(call: OperatorCall, i: int, spatial: int, default: int) -> tuple[int, ...] | None:
    if i < 0:
        return (default,) * spatial
    given = call.integers(i)
    if given is None:
        return None
    return given * spatial if len(given) == 1 else given if len(given) == spatial else None
