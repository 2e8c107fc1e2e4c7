"""Fused attention: two products forward, five backward (one of them made again).

Of a causal call only the pairs at or below the diagonal are needed; formulas that ignore the mask
count twice as much, and both figures are kept.
"""

from typing import NamedTuple

from pinchpoint.analysis.costs.call import Cost, OperatorCall
from pinchpoint.analysis.host.input_arguments import Shape


class _Spelling(NamedTuple):
    """Where a fused operator has its arguments."""

    query: int
    causal: int  # input that tells whether the mask is causal
    heads_first: bool  # (batch, heads, length, width), else (batch, length, heads, width)
    sequences: int = -1  # input that is only there for packed sequences of several lengths
    backward: bool = False


# Positions in the schemas of ATen's native_functions.yaml.
_SPELLINGS = {
    "aten::_scaled_dot_product_flash_attention": _Spelling(0, 4, True),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _Spelling(0, 4, True),
    "aten::_scaled_dot_product_efficient_attention": _Spelling(0, 6, True),
    "aten::_scaled_dot_product_cudnn_attention": _Spelling(0, 6, True),
    "aten::_scaled_dot_product_fused_attention_overrideable": _Spelling(0, 5, True),
    "aten::_cudnn_attention_forward": _Spelling(0, 10, True, 4),
    "aten::_flash_attention_forward": _Spelling(0, 8, False, 3),
    "aten::_efficient_attention_forward": _Spelling(0, 9, False, 4),
    "flash_attn::_flash_attn_forward": _Spelling(0, 5, False),
    "aten::_scaled_dot_product_flash_attention_backward": _Spelling(1, 11, True, 6, True),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _Spelling(1, 7, True, -1, True),
    "aten::_scaled_dot_product_efficient_attention_backward": _Spelling(1, 10, True, -1, True),
    "aten::_scaled_dot_product_cudnn_attention_backward": _Spelling(1, 14, True, 9, True),
    "aten::_cudnn_attention_backward": _Spelling(1, 14, True, 9, True),
    "aten::_flash_attention_backward": _Spelling(1, 11, False, 6, True),
    "aten::_efficient_attention_backward": _Spelling(1, 14, False, 6, True),
    "flash_attn::_flash_attn_backward": _Spelling(1, 11, False, -1, True),
}
NAMES = tuple(_SPELLINGS)


def attention(call: OperatorCall) -> Cost | None:
    """Any fused attention over whole sequences; packed ones hide their lengths and give None."""
    how = _SPELLINGS[call.name]
    if how.sequences >= 0 and call.shape(how.sequences) is not None:
        return None
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
