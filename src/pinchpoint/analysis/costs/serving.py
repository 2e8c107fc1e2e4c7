"""Operators of serving engines: vLLM's ``_C``, SGLang's ``sgl_kernel``, grouped, scaled products.

Outputs are among the inputs, as in their C++ schemas. What reads pages of a cache (attention) or
experts (mixtures) is not among them: which pages and experts is not in a recording.
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


def scaled_product(call: OperatorCall) -> Cost | None:
    """``cutlass_scaled_mm(out, a, b, …)``: a product into its first argument."""
    out, a, b = call.shape(0), call.shape(1), call.shape(2)
    if out is None or a is None or b is None or len(a) != 2 or len(b) != 2 or a[1] != b[0]:
        return None
    return Cost(2 * a[0] * a[1] * b[1], sum(call.bytes(i) for i in range(3)), matrix=True)


def grouped_product(call: OperatorCall) -> Cost | None:
    """``_grouped_mm(a, b)``: each row of ``a`` meets the matrix of its group."""
    a, b = call.shape(0), call.shape(1)
    if a is None or b is None or len(a) != 2 or len(b) != 3 or a[1] != b[1]:
        return None
    out = a[0] * b[2] * max(call.element_bytes(0), 2)  # results of 8 bits are of 16
    used = min(a[0], b[0]) * elements(b[1:]) * call.element_bytes(1)  # at most an expert a row
    return Cost(2 * a[0] * a[1] * b[2], call.bytes(0) + used + out, matrix=True)
