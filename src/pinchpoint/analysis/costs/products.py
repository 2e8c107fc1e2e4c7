"""Matrix products: 2 m n k for each, and reading both operands and writing the result once."""

from typing import NamedTuple

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


COMPILED_TEMPLATE = "triton_tem_"


def template(call: OperatorCall) -> Cost | None:
    """A product that a compiler made from a template: ``(a, b, …, result)``, b as it is stored.

    None where the arguments do not show it: attention, or sizes that were not recorded.
    """
    shapes = [s for i in call.tensors() if (s := call.shape(i)) is not None and len(s) == 2]
    if len(shapes) < 3 or shapes[0][1] not in shapes[1]:
        return None
    a, b, out = shapes[0], shapes[1], shapes[-1]
    columns = b[1] if b[0] == a[1] else b[0]
    if out != (a[0], columns):
        return None
    return Cost(2 * elements(out) * a[1], sum(map(call.bytes, call.tensors())), matrix=True)


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


# ------------------------------------------------------------------------------------------------
# Fused attention: two products forward, five backward (one of them made again).
#
# Of a causal call only the pairs at or below the diagonal are needed; formulas that ignore the
# mask count twice as much, and both figures are kept.


class _Spelling(NamedTuple):
    """Where a fused operator has its arguments."""

    query: int
    causal: int  # input that tells whether the mask is causal
    heads_first: bool  # (batch, heads, length, width), else (batch, length, heads, width)
    sequences: int = -1  # input that is only there for packed sequences of several lengths
    backward: bool = False
    mask: int = -1  # input that is a mask or bias, if it is given


# Positions in the schemas of ATen's native_functions.yaml.
_SPELLINGS = {
    "aten::_scaled_dot_product_flash_attention": _Spelling(0, 4, True),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _Spelling(0, 4, True, mask=5),
    "aten::_scaled_dot_product_efficient_attention": _Spelling(0, 6, True, mask=3),
    "aten::_scaled_dot_product_cudnn_attention": _Spelling(0, 6, True, mask=3),
    "aten::_scaled_dot_product_fused_attention_overrideable": _Spelling(0, 5, True, mask=3),
    "aten::_cudnn_attention_forward": _Spelling(0, 10, True, 4, mask=3),
    "aten::_flash_attention_forward": _Spelling(0, 8, False, 3),
    "aten::_efficient_attention_forward": _Spelling(0, 9, False, 4, mask=3),
    "flash_attn::_flash_attn_forward": _Spelling(0, 5, False),
    "flash_attn::_flash_attn_varlen_forward": _Spelling(0, 9, False, 3),
    "aten::_scaled_dot_product_flash_attention_backward": _Spelling(1, 11, True, 6, True),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _Spelling(
        1, 7, True, -1, True, mask=8
    ),
    "aten::_scaled_dot_product_efficient_attention_backward": _Spelling(
        1, 10, True, -1, True, mask=4
    ),
    "aten::_scaled_dot_product_cudnn_attention_backward": _Spelling(1, 14, True, 9, True, mask=8),
    "aten::_cudnn_attention_backward": _Spelling(1, 14, True, 9, True, mask=8),
    "aten::_flash_attention_backward": _Spelling(1, 11, False, 6, True),
    "aten::_efficient_attention_backward": _Spelling(1, 14, False, 6, True, mask=4),
    "flash_attn::_flash_attn_backward": _Spelling(1, 11, False, -1, True),
    "flash_attn::_flash_attn_varlen_backward": _Spelling(1, 15, False, 9, True),
    "FlashAttnFunc": _Spelling(0, 5, False),  # flash-attn before it had operators
    "FlashAttnVarlenFunc": _Spelling(0, 9, False, 3),
    "xformers_flash::flash_fwd": _Spelling(0, 10, False, 3),
    "xformers_flash::flash_bwd": _Spelling(1, 12, False, 6, True),
}
ATTENTION = tuple(_SPELLINGS)


def dense_mask(call: OperatorCall) -> Shape | None:
    """The shape [.., queries, keys] of a mask or bias with a row for each of several queries."""
    how = _SPELLINGS.get(call.name)
    shape = call.shape(how.mask) if how is not None and how.mask >= 0 else None
    return shape if shape is not None and len(shape) >= 2 and min(shape[-2:]) > 1 else None


def attention(call: OperatorCall) -> Cost | None:
    """Any fused attention; of packed sequences, whose lengths are hidden, the least."""
    how = _SPELLINGS[call.name]
    if how.sequences >= 0 and (ends := call.shape(how.sequences)) is not None:
        return _packed_attention(call, how, elements(ends) - 1)
    sizes = [_sizes(call.shape(how.query + i), heads_first=how.heads_first) for i in range(3)]
    if any(size is None for size in sizes):
        return None
    query, key, value = (size for size in sizes if size is not None)
    if query.width != key.width or key.length != value.length:
        return None
    causal = call.value(how.causal).strip().lower() in {"true", "1", "2"}
    pairs = query.length * key.length
    needed = _below_diagonal(query.length, key.length) if causal else pairs
    per_pair = 2 * query.batch * query.heads
    per_pair *= 3 * query.width + 2 * value.width if how.backward else query.width + value.width
    inputs = sum(call.bytes(how.query + i) for i in range(3))
    output = query.batch * query.heads * query.length * value.width * call.element_bytes(how.query)
    # forward reads q, k, v and writes the output; backward also reads the output and its gradient
    # and writes three gradients
    moved = 2 * inputs + 2 * output if how.backward else inputs + output
    return Cost(per_pair * needed, moved, matrix=True, whole_flops=per_pair * pairs)


def _packed_attention(call: OperatorCall, how: _Spelling, sequences: int) -> Cost | None:
    """Sequences one after the other: fewest pairs are there if all are of one length.

    ``(tokens, heads, width)``, also behind a batch of 1. Keys must be as many as queries.
    """
    query, key, value = (call.shape(how.query + i) for i in range(3))
    if query is None or key is None or value is None or sequences < 1:
        return None
    if min(len(query), len(key)) < 3:
        return None
    (tokens, heads, width), keys = query[-3:], key[-3]
    if keys != tokens or elements(query[:-3]) != 1 or key[-1] != width:
        return None
    causal = call.value(how.causal).strip().lower() in {"true", "1", "2"}
    pairs = tokens * tokens // sequences
    per_pair = 2 * heads * (3 * width + 2 * value[-1] if how.backward else width + value[-1])
    inputs = sum(call.bytes(how.query + i) for i in range(3))
    output = tokens * heads * value[-1] * call.element_bytes(how.query)
    moved = 2 * inputs + 2 * output if how.backward else inputs + output
    half = (pairs + tokens) // 2 if causal else pairs
    return Cost(per_pair * half, moved, matrix=True, whole_flops=per_pair * pairs)


class _Sizes(NamedTuple):
    batch: int
    heads: int
    length: int
    width: int


def _sizes(shape: Shape | None, *, heads_first: bool) -> _Sizes | None:
    if shape is None or len(shape) != 4:
        return None
    batch, one, other, width = shape
    return _Sizes(batch, one, other, width) if heads_first else _Sizes(batch, other, one, width)


def _below_diagonal(queries: int, keys: int) -> int:
    """Pairs of a query and the keys up to it; of a shorter query the last rows of the square."""
    if queries <= keys:
        first = keys - queries + 1
        return queries * (first + keys) // 2
    return keys * (keys + 1) // 2 + (queries - keys) * keys
