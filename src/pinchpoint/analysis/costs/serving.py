"""Operators of serving engines: vLLM's ``_C``, SGLang's ``sgl_kernel``, grouped, scaled products.

Outputs are among the inputs, as in their C++ schemas. Which pages of a cache and which experts a
call reads is not in a recording: of experts, as many are counted as tokens meet if every expert is
as likely, of a cache at most what the longest sequence needs.
"""

from pinchpoint.analysis.costs.call import Cost, OperatorCall
from pinchpoint.analysis.host.input_arguments import elements

_LIBRARIES = ("_C::", "_C_custom_ar::", "sgl_kernel::", "fbgemm::", "quantization::")
_NOT_BY_SIZE = (
    "attention", "moe", "expert", "mm", "gemm", "linear", "cache", "lookup", "embedding", "all_",
    "sample", "mamba", "selective_scan", "topk",
)  # fmt: skip
CACHE_WRITES = ("_C_cache_ops::reshape_and_cache", "_C_cache_ops::reshape_and_cache_flash")
_TABLE = 4  # of rotary_embedding: cosines and sines of all positions, of which few are read


def streaming(call: OperatorCall) -> Cost | None:
    """Norms, activations, rotations, quantisation, permutations: each tensor moves once."""
    if not call.name.startswith(_LIBRARIES) or any(word in call.name for word in _NOT_BY_SIZE):
        return None
    rotary = "rotary_embedding" in call.name
    moved = sum(call.bytes(i) for i in call.tensors() if not (rotary and i == _TABLE))
    updated = "fused_add" in call.name or rotary  # in place: read and written
    return Cost(None, moved * (2 if updated else 1)) if moved else None


def cache_write(call: OperatorCall) -> Cost | None:
    """Keys and values are read, and written to their slots; the cache is not touched else."""
    if call.shape(0) is None or call.shape(1) is None:
        return None
    width = call.element_bytes(2) if call.shape(2) is not None else call.element_bytes(0)
    written = (call.size(0) + call.size(1)) * width
    return Cost(0, call.bytes(0) + call.bytes(1) + written)


# Where products of scaled numbers have their operands; fp4 holds two numbers in a byte.
SCALED_PRODUCTS = {
    "_C::cutlass_scaled_mm": (1, 2),
    "_C::cutlass_scaled_mm_azp": (1, 2),
    "_C::cutlass_scaled_fp4_mm": (1, 2),
    "sgl_kernel::cutlass_scaled_fp4_mm": (1, 2),
    "sgl_kernel::fp8_scaled_mm": (0, 1),
    "sgl_kernel::int8_scaled_mm": (0, 1),
    "sgl_kernel::fp8_blockwise_scaled_mm": (0, 1),
    "sglang::w8a8_block_fp8_matmul_triton": (0, 1),
    "vllm::apply_w8a8_block_fp8_linear": (0, 1),
    "vllm::w8a8_triton_block_scaled_mm": (0, 1),
    "vllm::fp8_gemm_nt_op": (0, 2),
    "aten::_scaled_mm_v2": (0, 1),
}
_PACKED = "fp4"
_RESULT_BYTES = 2  # of bfloat16 or float16


def scaled_product(call: OperatorCall) -> Cost | None:
    """A product of rows with a matrix, which may be stored transposed; its result has 16 bits."""
    at = SCALED_PRODUCTS[call.name]
    a, b = (call.shape(i) for i in at)
    if a is None or b is None or len(b) != 2 or a[-1] not in b:
        return None
    rows, columns = elements(a[:-1]), b[1] if b[0] == a[-1] else b[0]
    flops = 2 * rows * a[-1] * columns * (2 if _PACKED in call.name else 1)
    moved = sum(call.bytes(i) for i in at) + rows * columns * _RESULT_BYTES
    return Cost(flops, moved, matrix=True)


# ------------------------------------------------------------------------------------------------
# Mixtures of experts: ``fused_experts(tokens, up, down, weights, choices, …)``, with ``up`` of
# (experts, two halves, width) and ``down`` of (experts, width, inner).

FUSED_EXPERTS = tuple(
    f"{engine}::{kind}fused_experts"
    for engine in ("vllm", "sglang")
    for kind in ("inplace_", "outplace_", "")
)


def fused_experts(call: OperatorCall) -> Cost | None:
    """Each token meets the experts chosen for it; each expert that is met is read once."""
    tokens, up, down, chosen = (call.shape(i) for i in (0, 1, 2, 4))
    if tokens is None or up is None or down is None or chosen is None:
        return None
    if not len(up) == len(down) == 3 or not up[0]:
        return None
    met, packed = elements(chosen), 2 if up[-1] * 2 == tokens[-1] else 1
    size = elements(up[1:]) + elements(down[1:])
    read = (call.bytes(1) + call.bytes(2)) / up[0] * _experts_met(met, up[0])
    return Cost(2 * met * size * packed, round(read) + 2 * call.bytes(0), matrix=True)


def _experts_met(choices: int, experts: int) -> float:
    """How many different ones are chosen, all as likely."""
    return float(experts * (1 - (1 - 1 / experts) ** choices))


# ------------------------------------------------------------------------------------------------
# Decoding from a cache in pages: query, number of heads in the cache, table of blocks, and the
# size of a block and the length of the longest sequence as numbers.

PAGED_ATTENTION = {
    "_C::paged_attention_v1": (1, 2, 4, 6, 8),
    "_C::paged_attention_v2": (4, 5, 7, 9, 11),
    "_rocm_C::paged_attention": (4, 5, 7, 9, 11),
}


def paged_attention(call: OperatorCall) -> Cost | None:
    """Keys and values of each sequence are read once for each of their heads: at most."""
    query, cache, heads_at, table_at, block_at = PAGED_ATTENTION[call.name]
    asked, table = call.shape(query), call.shape(table_at)
    heads, block = call.integers(heads_at), call.integers(block_at)
    longest = call.integers(block_at + 1)
    if asked is None or len(asked) != 3 or table is None or not heads or not block or not longest:
        return None
    length = min(longest[0], table[-1] * block[0])
    read = 2 * table[0] * length * heads[0] * asked[2] * call.element_bytes(cache)
    flops = 4 * table[0] * length * asked[1] * asked[2]
    return Cost(flops, read + 2 * call.bytes(query), matrix=True)


def grouped_product(call: OperatorCall) -> Cost | None:
    """``_grouped_mm(a, b)``: each row of ``a`` meets the matrix of its group."""
    a, b = call.shape(0), call.shape(1)
    if a is None or b is None or len(a) != 2 or len(b) != 3 or a[1] != b[1]:
        return None
    out = a[0] * b[2] * max(call.element_bytes(0), 2)  # results of 8 bits are of 16
    used = min(a[0], b[0]) * elements(b[1:]) * call.element_bytes(1)  # at most an expert a row
    return Cost(2 * a[0] * a[1] * b[2], call.bytes(0) + used + out, matrix=True)
