"""Operators of serving engines: vLLM's ``_C``, SGLang's ``sgl_kernel``, grouped, scaled products.

Outputs are among the inputs, as in their C++ schemas. Which pages of a cache and which experts a
call reads is not in a recording: of experts, as many are counted as tokens meet if every expert is
as likely, of a cache at most what the longest sequence needs.
"""

from pinchpoint.analysis.costs.call import Cost, OperatorCall
from pinchpoint.analysis.host.input_arguments import elements

_LIBRARIES = (
    "_C::", "_C_custom_ar::", "_moe_C::", "sgl_kernel::", "fbgemm::", "quantization::",
    "flashinfer::", "trtllm::", "aiter::",
)  # fmt: skip
_NOT_BY_SIZE = (
    "attention", "attn", "fwd", "decode", "prefill", "mla", "moe", "expert", "mm", "gemm", "gemv",
    "linear", "cache", "lookup", "embedding", "all_", "sample", "mamba", "selective_scan", "topk",
    "gate", "matmul", "conv",
)  # fmt: skip
# Choosing experts: scores in, weights and indices out, and sums over what they return.
_ROUTING = (
    "topk_softmax", "topk_sigmoid", "grouped_topk", "fused_gate", "moe_sum", "moe_align_block_size",
)  # fmt: skip
CACHE_WRITES = ("_C_cache_ops::reshape_and_cache", "_C_cache_ops::reshape_and_cache_flash")
_TABLE = 4  # of rotary_embedding: cosines and sines of all positions, of which few are read


def streaming(call: OperatorCall) -> Cost | None:
    """Norms, activations, rotations, quantisation, permutations: each tensor moves once."""
    if not call.name.startswith(_LIBRARIES):
        return None
    routing, rotary = call.name.endswith(_ROUTING), "rotary_embedding" in call.name
    if not (routing or rotary) and any(word in call.name for word in _NOT_BY_SIZE):
        return None
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
    "flashinfer::mm_fp4": (0, 1),
    "trtllm::fp8_block_scaling_gemm": (0, 1),
    "trtllm::fp4_gemm": (0, 1),
    "aiter::gemm_a8w8": (0, 1),
    "fbgemm::f8f8bf16": (0, 1),
    "fbgemm::f8f8bf16_rowwise": (0, 1),
    "fbgemm::f8f8bf16_blockwise": (0, 1),
    "bitsandbytes::int8_linear_matmul": (0, 1),
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
# Products of 16 bits with weights of 8 or 4: the weights are the largest tensor of whole numbers,
# two in a byte but where the name says 8 bits. Scales and orders are small beside them.

_PACKED_PRODUCTS = (
    "marlin_gemm", "awq_gemm", "gptq_gemm", "machete_mm", "gemv_4bit", "_weight_int4pack_mm",
    "_weight_int8pack_mm", "gptq_marlin_24_gemm",
)  # fmt: skip
_WHOLE_NUMBERS = ("int", "unsigned char", "signed char", "unsigned int", "long int")


def packed_product(call: OperatorCall) -> Cost | None:
    """``(rows, packed weights, scales, …)``: all weights are read; of width 4 if nothing else."""
    if not call.name.endswith(_PACKED_PRODUCTS):
        return None
    wide = [i for i in call.tensors() if call.dtype(i) in _WHOLE_NUMBERS]
    rows = next((i for i in call.tensors() if call.dtype(i) not in _WHOLE_NUMBERS), None)
    if rows is None or not wide:
        return None
    weights = max(wide, key=call.bytes)
    inner = (call.shape(rows) or (0,))[-1]
    held = call.bytes(weights) * (1 if "int8" in call.name else 2)
    if not inner or held % inner:
        return None
    count = call.size(rows) // inner
    moved = call.bytes(rows) + call.bytes(weights) + count * (held // inner) * _RESULT_BYTES
    return Cost(2 * count * held, moved, matrix=True)


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


_EXPERTS = ("moe", "expert")


def experts_by_sizes(call: OperatorCall) -> Cost | None:
    """Other spellings: weights are the tensors of three dimensions with one first size.

    Tokens are the first matrix of a width that the weights know; each meets as many experts as a
    matrix of whole numbers has columns for it, or one at least. None where weights are hidden.
    """
    if not any(word in call.name for word in _EXPERTS):
        return None
    cubes = [i for i in call.tensors() if len(call.shape(i) or ()) == 3]
    largest = max((call.bytes(i) for i in cubes), default=0)
    held = [i for i in cubes if call.bytes(i) * _MUCH_SMALLER >= largest]
    experts = {(call.shape(i) or (0,))[0] for i in held}
    if len(held) < 2 or len(experts) != 1 or min(experts) < 2:
        return None
    widths = {size for i in held for size in (call.shape(i) or ())[1:]}
    tokens = next((i for i in call.tensors() if _is_matrix(call, i, widths)), None)
    if tokens is None:
        return None
    (rows, _), count = call.shape(tokens) or (0, 0), min(experts)
    chosen = [
        (call.shape(i) or (0,))[-1]
        for i in call.tensors()
        if call.dtype(i) in _WHOLE_NUMBERS and (call.shape(i) or ())[:-1] == (rows,)
    ]
    met = rows * min(chosen, default=1)
    size = sum(call.size(i) * (2 if call.dtype(i) == "unsigned char" else 1) for i in held)
    read = sum(map(call.bytes, held)) / count * _experts_met(met, count)
    moved = round(read) + 2 * call.bytes(tokens)
    return Cost(2 * met * (size // count), moved, matrix=True)


_MUCH_SMALLER = 8  # scales of blocks of 16 and more numbers are, the two products' weights are not


def _is_matrix(call: OperatorCall, i: int, widths: set[int]) -> bool:
    shape = call.shape(i) or ()
    return len(shape) == 2 and (shape[1] in widths or 2 * shape[1] in widths)


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
