"""Matrix products: 2 m n k for each, and reading both operands and writing the result once."""

from pinchpoint.analysis.costs.call import Cost, OperatorCall
from pinchpoint.analysis.host.input_arguments import Shape, elements


def mm(call: OperatorCall) -> Cost | None:
    """``aten::mm(a, b)``, also with an output as third input."""
    return _product(call, 0, 1)


def addmm(call: OperatorCall) -> Cost | None:
    """``aten::addmm(bias, a, b)``; the addition is counted by nobody, as it is part of the FMA."""
    cost = _product(call, 1, 2)
    return cost and Cost(cost.flops, (cost.bytes or 0) + call.bytes(0), matrix=True)


def linear(call: OperatorCall) -> Cost | None:
    """``aten::linear(x, weight, bias)`` where it is one kernel; weight is ``(out, in)``."""
    x, weight = call.shape(0), call.shape(1)
    if x is None or weight is None or len(weight) != 2 or x[-1] != weight[1]:
        return None
    rows = elements(x) // max(x[-1], 1)
    out = rows * weight[0]
    moved = call.bytes(0) + call.bytes(1) + call.bytes(2) + out * call.element_bytes(0)
    return Cost(2 * out * weight[1], moved, matrix=True)


def bmm(call: OperatorCall) -> Cost | None:
    """``aten::bmm(a, b)``: a batch of products."""
    return _batched(call, 0, 1)


def baddbmm(call: OperatorCall) -> Cost | None:
    """``aten::baddbmm(c, a, b)``."""
    cost = _batched(call, 1, 2)
    return cost and Cost(cost.flops, (cost.bytes or 0) + call.bytes(0), matrix=True)


def matmul(call: OperatorCall) -> Cost | None:
    """``aten::matmul`` where it is one kernel: batches are broadcast."""
    a, b = call.shape(0), call.shape(1)
    if a is None or b is None or len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        return None
    batch = elements(_broadcast(a[:-2], b[:-2]) or ())
    return _cost(call, 0, 1, batch, a[-2], b[-1], a[-1])


def mv(call: OperatorCall) -> Cost | None:
    """``aten::mv(a, x)`` and ``addmv(y, a, x)``; matrix units do not help a vector."""
    first = 1 if call.name.startswith("aten::addmv") else 0
    a, x = call.shape(first), call.shape(first + 1)
    if a is None or x is None or len(a) != 2 or a[1] != elements(x):
        return None
    moved = call.bytes(first) + call.bytes(first + 1) + a[0] * call.element_bytes(first)
    return Cost(2 * a[0] * a[1], moved)


def dot(call: OperatorCall) -> Cost | None:
    """``aten::dot(x, y)``."""
    x = call.shape(0)
    return None if x is None else Cost(2 * elements(x), call.bytes(0) + call.bytes(1))


def _product(call: OperatorCall, first: int, second: int) -> Cost | None:
    a, b = call.shape(first), call.shape(second)
    if a is None or b is None or len(a) != 2 or len(b) != 2 or a[1] != b[0]:
        return None
    return _cost(call, first, second, 1, a[0], b[1], a[1])


def _batched(call: OperatorCall, first: int, second: int) -> Cost | None:
    a, b = call.shape(first), call.shape(second)
    if a is None or b is None or len(a) != 3 or len(b) != 3 or a[0] != b[0] or a[2] != b[1]:
        return None
    return _cost(call, first, second, a[0], a[1], b[2], a[2])


def _cost(call: OperatorCall, first: int, second: int, batch: int, m: int, n: int, k: int) -> Cost:
    out = batch * m * n * _result_bytes(call, first)
    return Cost(2 * batch * m * n * k, call.bytes(first) + call.bytes(second) + out, matrix=True)


def _result_bytes(call: OperatorCall, first: int) -> int:
    width = call.element_bytes(first)
    return max(width, 2)  # one-byte inputs (fp8, int8) give results of at least two bytes


def _broadcast(a: Shape, b: Shape) -> Shape | None:
    out = []
    for x, y in zip(_padded(a, len(b)), _padded(b, len(a)), strict=True):
        if x != y and 1 not in (x, y):
            return None
        out.append(max(x, y))
    return tuple(out)


def _padded(shape: Shape, length: int) -> Shape:
    return (1,) * max(length - len(shape), 0) + shape
