"""Work that is bound by memory almost always: elementwise, reductions, norms, losses, lookups.

FLOPs are counted as operations on elements, a transcendental function as one; they hardly matter.
Bytes are each input read once and each output written once.
"""

from pinchpoint.analysis.costs.call import Cost, OperatorCall, once_per_call
from pinchpoint.analysis.host.input_arguments import Shape, elements

# Operations an element of the output, where it is not one.
_OPERATIONS = {
    "gelu": 8, "gelu_backward": 12, "silu": 4, "silu_backward": 6, "sigmoid": 3,
    "sigmoid_backward": 3, "tanh": 1, "tanh_backward": 3, "softplus": 3, "mish": 5,
    "hardswish": 4, "leaky_relu": 2, "elu": 3, "addcmul": 3, "addcdiv": 3, "lerp": 3,
    "threshold_backward": 1, "pow": 1, "native_dropout": 2, "native_dropout_backward": 2,
}  # fmt: skip
_MOVES = {
    "copy", "clone", "contiguous", "_to_copy", "fill", "zero", "zeros_like", "ones_like", "flip",
    "roll", "repeat", "constant_pad_nd", "arange", "tril", "triu", "masked_fill", "where",
}  # fmt: skip

ELEMENTWISE = (
    "add", "sub", "rsub", "mul", "div", "neg", "abs", "exp", "exp2", "expm1", "log", "log2",
    "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "erf", "pow", "tanh", "tanh_backward",
    "sigmoid", "sigmoid_backward", "relu", "gelu", "gelu_backward", "silu", "silu_backward",
    "threshold_backward", "leaky_relu", "leaky_relu_backward", "elu", "elu_backward", "softplus",
    "mish", "hardswish", "hardtanh", "clamp", "clamp_min", "clamp_max", "maximum", "minimum",
    "addcmul", "addcdiv", "lerp", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or",
    "logical_not", "bitwise_and", "bitwise_or", "bitwise_not", "isnan", "isinf", "sign", "floor",
    "ceil", "round", "trunc", "remainder", "fmod", "atan2", "copy", "clone", "_to_copy", "fill",
    "zero", "masked_fill", "where", "flip", "roll", "tril", "triu", "native_dropout",
    "native_dropout_backward", "bernoulli", "uniform", "normal", "exponential", "random",
    "constant_pad_nd", "square", "nan_to_num", "logit", "logit_backward", "hardsigmoid",
    "hardsigmoid_backward", "hardswish_backward", "softplus_backward", "mish_backward", "erfc",
    "erfinv", "lgamma", "digamma", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh",
    "atanh", "xlogy", "hypot", "copysign", "logaddexp", "sgn", "signbit", "frac", "isfinite",
    "hardtanh_backward", "softshrink", "log_sigmoid_forward", "bitwise_xor", "logical_xor", "sinc",
    "polar", "complex", "floor_divide", "conj_physical", "angle", "threshold",
)  # fmt: skip


# Where the tensor of ``out=`` stands: behind all inputs of the operator.
_OUT_AT = {"add": 3, "sub": 3, "mul": 2, "div": 2, "maximum": 2, "minimum": 2, "pow": 2}


def elementwise(call: OperatorCall) -> Cost | None:
    """One result an element of the broadcast inputs; in place if the name says so."""
    operator = call.name.removeprefix("aten::")
    in_place = operator.endswith("_") and not operator.endswith("__")
    bare = operator.rstrip("_")
    inputs = min(len(call.shapes), _OUT_AT.get(bare, len(call.shapes)))
    tensors = [i for i in range(inputs) if call.is_tensor(i)]
    if not tensors:
        return None
    if bare in ("copy", "fill", "zero", "normal", "uniform", "exponential", "random", "bernoulli"):
        return _written_over(call, bare)
    out = _broadcast(call, tensors)
    width = call.element_bytes(tensors[0]) if in_place else max(map(call.element_bytes, tensors))
    if bare in (
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "isnan",
        "isinf",
        "isfinite",
    ) or bare.startswith("logical"):
        width = 1
    read = sum(call.bytes(i) for i in tensors)
    operations = 0 if bare in _MOVES else _OPERATIONS.get(bare, 1)
    mask = out if bare == "native_dropout" else 0
    return Cost(operations * out, read + out * width + mask)


def _written_over(call: OperatorCall, bare: str) -> Cost:
    """The first input is only written; ``copy_`` reads the second."""
    source = call.bytes(1) if bare == "copy" and call.is_tensor(1) else 0
    if source and call.size(1) < call.size(0):  # broadcast: still read once
        source = call.bytes(1)
    return Cost(0, call.bytes(0) + source)


def reduction(call: OperatorCall) -> Cost | None:
    """``sum``, ``mean``, ``amax``, ``any``, …: one operation an input element."""
    x = call.shape(0)
    if x is None:
        return None
    kept = _kept(x, call.integers(1) if call.value(1) not in ("", "[]") else None)
    return Cost(elements(x), call.bytes(0) + kept * call.element_bytes(0))


def _kept(x: Shape, dims: tuple[int, ...] | None) -> int:
    if dims is None or any(not -len(x) <= d < len(x) for d in dims):
        return 1
    gone = {d % len(x) for d in dims}
    return elements(tuple(size for i, size in enumerate(x) if i not in gone))


_REDUCTIONS = (
    "sum", "mean", "prod", "amax", "amin", "max", "min", "argmax", "argmin", "any", "all", "norm",
    "linalg_vector_norm", "var", "std", "var_mean", "logsumexp", "count_nonzero",
)  # fmt: skip
_SAME_SIZE = ("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data")
_DIMS_AT = {"norm": 2, "linalg_vector_norm": 2}  # where dimensions stand, if not second


@once_per_call
def result_elements(call: OperatorCall) -> int | None:
    """Elements of the result of an elementwise operator, a softmax or a reduction; None for others.

    A reduction over dimensions that were not recorded counts as one over all.
    """
    bare = call.name.removeprefix("aten::")
    tensors = [i for i in range(len(call.shapes)) if call.is_tensor(i)]
    if not call.name.startswith("aten::") or not tensors:
        return None
    if bare in _REDUCTIONS:
        x, dims = call.shape(0), _DIMS_AT.get(bare, 1)
        if call.shape(1) is not None:  # ``max(a, b)`` of two tensors
            return _broadcast(call, tensors)
        if x is None:
            return 1
        return _kept(x, call.integers(dims) if call.value(dims) not in ("", "[]") else None)
    if bare in _SAME_SIZE or bare.rstrip("_") in ELEMENTWISE:
        return call.size(tensors[0]) if bare.endswith("_") else _broadcast(call, tensors)
    return None


def _broadcast(call: OperatorCall, tensors: list[int]) -> int:
    shapes = [call.shape(i) or () for i in tensors]
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return elements(tuple(max(sizes) for sizes in zip(*padded, strict=True)))


def scan(call: OperatorCall) -> Cost | None:
    """``cumsum`` and its kin: at least once through input and output."""
    x = call.shape(0)
    return None if x is None else Cost(elements(x), 2 * call.bytes(0))


def softmax(call: OperatorCall) -> Cost | None:
    """Forward: maximum, difference, exponential, sum, quotient: five an element."""
    x = call.shape(0)
    return None if x is None else Cost(5 * elements(x), 2 * call.bytes(0))


def softmax_backward(call: OperatorCall) -> Cost | None:
    """Gradient from the gradient and the output: four an element."""
    x = call.shape(0)
    if x is None:
        return None
    return Cost(4 * elements(x), call.bytes(0) + call.bytes(1) + call.bytes(0))


# Mean, variance (three), normalising (two) and the affine step (two).
_NORM_OPERATIONS = 8
_NORM_BACKWARD_OPERATIONS = 14  # two sums over the row, the input's gradient, two column sums


def norm(call: OperatorCall) -> Cost | None:
    """Layer, group, batch and RMS norm forward: once through the input and the output."""
    x = call.shape(0)
    return None if x is None else Cost(_NORM_OPERATIONS * elements(x), 2 * call.bytes(0))


def norm_backward(call: OperatorCall) -> Cost | None:
    """Norms backward: the gradient and the input are read, the input's gradient is written."""
    grad, x = call.shape(0), call.shape(1)
    if grad is None or x is None:
        return None
    moved = 2 * call.bytes(0) + call.bytes(1)
    return Cost(_NORM_BACKWARD_OPERATIONS * max(elements(x), elements(grad)), moved)


def nll_loss(call: OperatorCall) -> Cost | None:
    """One element a row is looked at."""
    rows = call.shape(1) or call.shape(0)
    if rows is None:
        return None
    count = rows[0]
    return Cost(count, count * (call.element_bytes(0) + call.element_bytes(1)))


def nll_loss_backward(call: OperatorCall) -> Cost | None:
    """One element a row is written; the zeros around it are an operator of their own."""
    scores = call.shape(1)
    if scores is None:
        return None
    return Cost(scores[0], scores[0] * (call.element_bytes(1) + call.element_bytes(2)))


def gather(call: OperatorCall) -> Cost | None:
    """``gather(table, dim, index)``: what is taken is read and written; the table is not."""
    return _looked_up(call, call.size(2)) if call.shape(2) is not None else None


def index_select(call: OperatorCall) -> Cost | None:
    """``index_select(table, dim, index)`` and ``embedding(table, index)``: whole rows."""
    table = call.shape(0)
    place = 2 if call.name == "aten::index_select" else 1
    if table is None or call.shape(place) is None or len(table) < 2:
        return None
    return _looked_up(call, call.size(place) * elements(table[1:]), place)


def _looked_up(call: OperatorCall, taken: int, index: int = 2) -> Cost:
    return Cost(0, 2 * taken * call.element_bytes(0) + call.bytes(index))


def embedding_backward(call: OperatorCall) -> Cost | None:
    """``embedding_dense_backward``: gradients are added to rows of a table that is already zero."""
    grad = call.shape(0)
    if grad is None:
        return None
    return Cost(elements(grad), 3 * call.bytes(0) + call.bytes(1))


def concatenation(call: OperatorCall) -> Cost | None:
    """``cat`` and ``stack``: everything is read and written once; the element type is assumed."""
    parts = call.shape_list(0)
    if parts is None:
        return None
    return Cost(0, None if not parts else 2 * sum(elements(p) for p in parts) * _list_bytes(call))


def _list_bytes(call: OperatorCall) -> int:
    # the type of tensors in a list is not recorded; two bytes is the least that training uses
    return 2


def pooling_backward(call: OperatorCall) -> Cost | None:
    """The gradient is read, and a gradient as large as the input is written."""
    grad, x = call.shape(0), call.shape(1)
    if grad is None or x is None:
        return None
    return Cost(elements(grad), call.bytes(0) + call.bytes(1))


def pooling(call: OperatorCall) -> Cost | None:
    """Pooling and resampling: once through the input; outputs are smaller or unknown."""
    x = call.shape(0)
    return None if x is None else Cost(elements(x), call.bytes(0))


# ------------------------------------------------------------------------------------------------
# Kernels that Inductor writes: their arguments are recorded, their arithmetic is not.

COMPILED_PREFIX = "triton_"


def compiled(call: OperatorCall) -> Cost | None:
    """A generated Triton kernel: each tensor argument is an input or an output and moves once.

    Bytes are known to within what is updated in place; FLOPs are not known, and None.
    """
    moved = sum(call.bytes(i) for i in range(len(call.shapes)))
    return Cost(None, moved) if moved else None


# ------------------------------------------------------------------------------------------------
# Optimizer steps over lists of tensors. The type in a list is not recorded: float32 is assumed,
# the type that optimizers keep their state in.


_STATE_BYTES = 4  # float32

# Operations and tensors moved (reads and writes) an element of the parameters.
_ADAM = (14, 7)  # p, g, m, v read; p, m, v written
_SGD = (4, 5)  # p, g, momentum read; p, momentum written
_ADAGRAD = (6, 5)  # p, g, sum read; p, sum written
FUSED_OPTIMIZERS = {
    "aten::_fused_adam_": _ADAM,
    "aten::_fused_adamw_": _ADAM,
    "aten::_fused_sgd_": _SGD,
    "aten::_fused_adagrad_": _ADAGRAD,
}


def fused_optimizer(call: OperatorCall) -> Cost | None:
    """``_fused_adamw_`` and its kin; None where the shapes in the lists were not recorded."""
    count = _elements_of(call, 0)
    if count is None:
        return None
    operations, moves = FUSED_OPTIMIZERS[call.name]
    return Cost(operations * count, moves * count * _STATE_BYTES)


def foreach_optimizer(call: OperatorCall) -> Cost | None:
    """``_foreach_add_`` and its kin: one operation an element, a read for each list, a write."""
    count = _elements_of(call, 0)
    if count is None:
        return None
    lists = sum(1 for i in range(len(call.shapes)) if _elements_of(call, i) == count)
    operations = 2 if "addc" in call.name or "lerp" in call.name else 1
    return Cost(operations * count, (lists + 1) * count * _STATE_BYTES)


def _elements_of(call: OperatorCall, i: int) -> int | None:
    shapes = call.shape_list(i)
    if shapes is None:
        return None
    total = sum(elements(s) for s in shapes)
    return total if any(shapes) else None  # all empty: the recorder left the shapes out
