"""What kind of work a kernel's or an operator's name speaks of.

Kernel names are read top to bottom: the first row that matches decides, so a special case
stands above the general one. Matching is on lower case, without the names of types and of one
library that would be taken for the work itself.
"""

import re
from enum import IntEnum
from functools import lru_cache

from pinchpoint.regex import regex


class Category(IntEnum):
    """The kinds of device work that people speak of, and that have different cures."""

    GEMM = 1
    CONVOLUTION = 2
    ATTENTION = 3
    NORMALISATION = 4
    SOFTMAX = 5
    ELEMENTWISE = 6
    REDUCTION = 7
    POOLING = 8
    EMBEDDING = 9
    SORTING = 10
    DATA_MOVEMENT = 11
    OPTIMIZER = 12
    COLLECTIVE = 13
    COPY_H2D = 14
    COPY_D2H = 15
    COPY_D2D = 16
    COPY_P2P = 17
    COPY_OTHER = 18
    MEMSET = 19
    OTHER = 20

    @property
    def id(self) -> str:
        """Stable name for documents: lower case with dashes."""
        return self.name.lower().replace("_", "-")

    @property
    def label(self) -> str:
        """Name for people."""
        return LABELS[self]


LABELS = {
    Category.GEMM: "matrix products",
    Category.CONVOLUTION: "convolution",
    Category.ATTENTION: "attention",
    Category.NORMALISATION: "normalisation",
    Category.SOFTMAX: "softmax and cross-entropy",
    Category.ELEMENTWISE: "elementwise",
    Category.REDUCTION: "reduction",
    Category.POOLING: "pooling and resampling",
    Category.EMBEDDING: "embedding and indexing",
    Category.SORTING: "sort, scan, top-k",
    Category.DATA_MOVEMENT: "casts, copies, layout",
    Category.OPTIMIZER: "optimizer",
    Category.COLLECTIVE: "collectives",
    Category.COPY_H2D: "copy host to device",
    Category.COPY_D2H: "copy device to host",
    Category.COPY_D2D: "copy within the device",
    Category.COPY_P2P: "copy between devices",
    Category.COPY_OTHER: "copy, other or unknown direction",
    Category.MEMSET: "memset and fill",
    Category.OTHER: "other kernels",
}

_KERNELS: tuple[tuple[Category, str], ...] = (
    # Libraries of collectives, and the custom ones of serving engines and symmetric memory.
    (
        Category.COLLECTIVE,
        r"nccl(dev)?kernel|^nccl|rccl|msccl|nvshmem|deep_ep|oneccl|hccl|multimem_\w*(reduce|gather)"
        r"|userbuffers"
        r"|(one|two)_?shot\w*reduce|cross_device_reduce|all_?reduce_?\w*(kernel|fusion)"
        r"|^(all-(reduce|gather|to-all)|reduce-scatter|collective-(permute|broadcast))",
    ),
    # Copies and fills that a driver does with kernels of its own.
    (Category.COPY_D2D, r"__amd_rocclr_copybuffer|^memcpy\d*_"),
    (Category.MEMSET, r"__amd_rocclr_fillbuffer"),
    # Bookkeeping of key-value caches and casts around attention, which name it.
    (Category.EMBEDDING, r"reshape_and_cache|concat_and_cache|store_kvcache|kv_indices"),
    (Category.DATA_MOVEMENT, r"quantize_with_block|_fp8_quant"),
    # Above attention, because serving engines have flashinfer::…Norm; "vector norm" is no match.
    (
        Category.NORMALISATION,
        r"(layer|rms|batch|group|instance)_?norm|norm2d|bn_(fw|bw)|gammabetabackward|rowwisemoments"
        r"|computeinternalgradients|computefusedparams|computebackwardfusedparams",
    ),
    # Above convolution: fused attention kernels say fprop too. Above products: they say gemm.
    (
        Category.ATTENTION,
        r"flash|fmha|sdpa|attention|compute_dot_do_o|convert_dq|lean_reduction|(^|_)attn_|paged_attn|aiter\w*(fmha|mla|pa_)|_mha_|mla_decode"
        r"|batch(prefill|decode)with|reduce_segments",
    ),
    # Layout conversion around convolutions is a cost of the layout, not of the convolution.
    (Category.DATA_MOVEMENT, r"nchwtonhwc|nhwctonchw|batched_transpose"),
    # Rotary position "embeddings" are arithmetic, not lookups.
    (Category.ELEMENTWISE, r"rotary|(^|[_:])rope"),
    # XLA's own operations, as TPUs and CPUs run them: a name and a number.
    (Category.GEMM, r"^dot(\.\d+)?$"),
    (Category.REDUCTION, r"^reduce(-window)?(\.\d+)?$"),
    (Category.SORTING, r"^sort(\.\d+)?$"),
    (
        Category.DATA_MOVEMENT,
        r"^(copy|transpose|reshape|slice|pad|concatenate|broadcast|convert|dynamic-(update-)?slice)"
        r"(-start|-done)?(\.\d+)?$",
    ),
    # XLA names a fusion by its kind and last operation; a plain fusion_7 says nothing.
    (Category.REDUCTION, r"^(input|loop|wrapped)_\w*reduce"),
    (Category.EMBEDDING, r"^(input|loop|wrapped)_\w*(scatter|gather)"),
    (
        Category.DATA_MOVEMENT,
        r"^(input|loop|wrapped)_(transpose|convert|copy|slice|concatenate|pad|broadcast|reverse)",
    ),
    (Category.ELEMENTWISE, r"^(loop_\w*fusion|wrapped_)"),
    # Embedding kernels that update their weights in the same pass; above optimizers.
    (Category.EMBEDDING, r"split_embedding|embedding_bag|bounds_check_indices|pooled_embs"),
    (
        Category.CONVOLUTION,
        r"convol|conv(1|2|3)d|[a-z_]conv_|fprop|dgrad|wgrad|winograd|cudnn_\w*scudnn|scudnn_|884cudnn"
        r"|im2col|col2im|igemm_(fwd|bwd|wrw)|sp3asmconv|cudnn::cnn|implicit_gemm|cask_cudnn"
        r"|4conv6kernel|cask_plugin\w*cudnn|fft2d_|scalepackedtensor",
    ),
    # Of a mixture of experts, the part that gathers and weighs the experts' rows.
    (Category.EMBEDDING, r"moe\w*::\S*(finalize|permute|expand)"),
    # cuBLAS, cuBLASLt, CUTLASS, rocBLAS (Cijk), Composable Kernel, and their helper kernels.
    (
        Category.GEMM,
        r"gemm|gemv|nvjet|cijk_|matmul|cutlass|xmma|cublas|hipblas|splitkreduce|^bmm_|^_?mm_kernel"
        r"|wvsplitk|marlin|machete|scaled_mm|\bmul_mat_(q|f|vec)",  # the last: of ggml
    ),
    (Category.SOFTMAX, r"softmax|nll_?loss|nllcriterion|cross_?entropy|ctc_loss"),
    (
        Category.OPTIMIZER,
        r"adam_?(functor|math|kernel|w)|fused_?adam|lambfunctor|lambstage|sgd_?(math|functor)"
        r"|fused_?sgd|adagrad|rmsprop|adafactor|amp_(non_finite|update_scale)",
    ),
    (
        Category.SORTING,
        r"radix_?sort|bitonic|sort_?(kernel|pairs|key|post)|routing(indices|_compute)|bitmatrix|devicescan|devicecompact|scan_kernel"
        r"|scan_(innermost|outer|by_key)|scan_impl|scan_config|lookback|topk|top_k|unique"
        r"|histogram|searchsorted|bucketize|cumsum|cumprod|deviceselect|reducebykey|multinomial"
        r"|merge_sort",
    ),
    (Category.POOLING, r"pool|upsample|interpolat|grid_?sampl|roi_?align|(^|_)nms"),
    (
        Category.EMBEDDING,
        r"embedding|index(_|select|ing)|gather|scatter"
        r"|take_put|masked_select|nonzero|krn_partial|compute_grad_weight|num_of_segments"
        r"|num_of_partial_segments|partial_segment"
        r"|page_indices|permute_(2d|1d|indices|lengths)|sparse_features"
        r"|to_dense_representation|compute_cuda_kernel<(long|int)>",
    ),
    (Category.MEMSET, r"fillfunctor|(?<!masked_)fill_kernel|memset"),
    # Kernels that compute nothing: casts, concatenation, transposition, padding, quantisation.
    (
        Category.DATA_MOVEMENT,
        r"copy_kernel|catarray|cat_array|transpose|split_with_sizes|chunk_cat|roll_cuda|flip_cuda"
        r"|functor<[^()]*, at::native::copy<|convert_?tensor|cast_kernel|quant_\w*kernel|quantize_"
        r"|pad_kernel|\w+_pad\d?d|triu_tril|_to_fp8|float_to_|_to_float|recat_copy|permute_kernel",
    ),
    (
        Category.REDUCTION,
        r"reduce_?\d?\w*_?kernel|reduceop|devicereduce|segmented_?reduce|argm(ax|in)|lpnorm|l2norm"
        r"|dot_kernel",
    ),
    (
        Category.ELEMENTWISE,
        r"elementwise|pointwise|multi_tensor_apply|dropout|distribution_|cupy_|fp8_qparam|clamp_"
        r"|silu|gelu|swiglu|act_and_mul|activation|optensor|op_tensor|tensorop|arange|linspace"
        r"|bias_rescale",
    ),
)

# Kernels that Inductor writes carry in their names the operators that they fuse: a pointwise
# kernel that prepares a convolution is not a convolution.
_INDUCTOR = regex(r"triton_(poi|red|per|for|tem|mm|spl|unk)_")
_INDUCTOR_KERNELS: tuple[tuple[Category, str], ...] = (
    (Category.ATTENTION, r"triton_tem_\w*(attention|sdpa|flex)"),
    (Category.CONVOLUTION, r"triton_tem_\w*conv"),
    (Category.GEMM, r"triton_(tem|mm)_"),
    (
        Category.NORMALISATION,
        r"triton_(red|per)_\w*((layer|batch|group|rms)_norm|rsqrt\w*(mean|var)|(mean|var)\w*rsqrt)",
    ),
    (Category.SOFTMAX, r"softmax|nll_loss|cross_entropy"),
    (Category.POOLING, r"pool|upsample"),
    (Category.SORTING, r"_(sort|topk|cumsum|cumprod)(_|$)"),
    (Category.EMBEDDING, r"embedding|_index(_|$)|gather|scatter"),
    (Category.REDUCTION, r"triton_(red|per|spl)_"),
    # Fused from nothing but operators that move or convert.
    (
        Category.DATA_MOVEMENT,
        r"triton_poi_fused((__to_copy|_clone|__unsafe_view|_view|_transpose|_permute|_copy|_cat"
        r"|_stack|_slice|_t|_expand|_unsqueeze|_constant_pad_nd|_mm|_addmm|_bmm|_convolution"
        r"|_moe_forward|__(scaled_dot_product_\w*attention)))+(_\d+)?$",
    ),
    (Category.ELEMENTWISE, r""),
)

_STRONG_OPERATORS: tuple[tuple[Category, str], ...] = (
    (Category.OPTIMIZER, r"^optimizer\.(step|zero_grad)|_fused_(adam|sgd|adagrad)|_amp_foreach"),
    (Category.ATTENTION, r"scaled_dot_product|_attention_(forward|backward)|flash_attn|sdpa"),
    (Category.CONVOLUTION, r"aten::(\w*_)?(convolution|conv\d?d|conv_depthwise|conv_transpose)"),
    (Category.NORMALISATION, r"(layer|rms|batch|group|instance)_norm"),
    (Category.EMBEDDING, r"aten::_?embedding|aten::_?index_(put|add|select|copy)"),
    (Category.SOFTMAX, r"aten::_?(log_)?softmax|nll_?loss|nllcriterion|cross_entropy"),
    # Operators of ONNX Runtime, of ONNX itself and its own.
    (Category.ATTENTION, r"onnx::\w*attention"),
    (Category.CONVOLUTION, r"onnx::\w*conv"),
    (Category.NORMALISATION, r"onnx::\w*normalization"),
    (Category.SOFTMAX, r"onnx::\w*softmax"),
)

_WEAK_OPERATORS: tuple[tuple[Category, str], ...] = (
    (Category.GEMM, r"aten::_?(scaled_)?(mm|addmm|bmm|baddbmm|matmul|linear|addmv|mv|einsum)"),
    (Category.GEMM, r"onnx::\w*(matmul|gemm)|onnx::(einsum|lstm|gru|rnn)"),
    (Category.SORTING, r"onnx::(topk|nonmaxsuppression|unique|cumsum)"),
    (Category.EMBEDDING, r"onnx::(embed|gather|scatter|nonzero|onehot)"),
    (
        Category.DATA_MOVEMENT,
        r"onnx::(transpose|reshape|concat|slice|split|squeeze|unsqueeze|cast|expand|pad|tile|flatten"
        r"|memcpy|reorder|quantizelinear|dequantizelinear|identity|shape)",
    ),
    (Category.REDUCTION, r"onnx::(reduce|arg(max|min)|globalaverage|sum|max|min|mean)(?!\w*pool)"),
    (
        Category.ELEMENTWISE,
        r"onnx::(\w*(gelu|relu|sigmoid|tanh|swish|silu)|add|sub|mul|div|erf|sqrt|pow|clip|where"
        r"|exp|log|neg|abs|equal|less|greater|and|or|not|round|floor|ceil|reciprocal)",
    ),
    (Category.SORTING, r"aten::_?(sort|argsort|topk|unique|cumsum|multinomial)"),
    (Category.EMBEDDING, r"aten::(gather|scatter|index|masked_select|nonzero|take)"),
    (Category.POOLING, r"pool|upsample"),
    (Category.DATA_MOVEMENT, r"aten::(copy_|cat|_to_copy|contiguous|clone)|_foreach_copy"),
    (Category.MEMSET, r"aten::(fill_|zero_)"),
    (Category.REDUCTION, r"aten::_?(sum|mean|max|min|argmax|norm|any|all|linalg_vector_norm)$"),
    (
        Category.ELEMENTWISE,
        r"aten::(add|sub|mul|div|relu|gelu|silu|where|exp|pow|_foreach|clamp|threshold|sigmoid|tanh)",
    ),
)

# What an enclosing operator may claim: a library kernel serves many operators, an at::native
# reduction inside a convolution's backward is still the reduction of its bias gradient.
CLAIMS: dict[Category, frozenset[Category]] = {
    Category.CONVOLUTION: frozenset({Category.GEMM, Category.OTHER}),
    Category.ATTENTION: frozenset(
        {Category.GEMM, Category.SOFTMAX, Category.ELEMENTWISE, Category.OTHER}
    ),
    Category.NORMALISATION: frozenset({Category.ELEMENTWISE, Category.REDUCTION, Category.OTHER}),
    Category.SOFTMAX: frozenset({Category.ELEMENTWISE, Category.REDUCTION, Category.OTHER}),
    Category.EMBEDDING: frozenset({Category.SORTING, Category.REDUCTION, Category.OTHER}),
    Category.OPTIMIZER: frozenset(
        {
            Category.ELEMENTWISE,
            Category.REDUCTION,
            Category.DATA_MOVEMENT,
            Category.MEMSET,
            Category.OTHER,
        }
    ),
}


def _compiled(
    rows: tuple[tuple[Category, str], ...],
) -> tuple[tuple[Category, re.Pattern[str]], ...]:
    return tuple((category, regex(pattern)) for category, pattern in rows)


# What a kernel does stands at the front of its name, and patterns take the square of its length:
# real C++ names reach some thousands of characters, hostile ones a million.
_TELLING_CHARACTERS = 4000
# fbgemm is mostly embeddings, and cutlass::bfloat16_t is a type that any kernel may use.
_NOT_THE_WORK = regex(r"fbgemm_gpu|cutlass::\w*(float|half)\w*_t")
_KERNEL_PATTERNS = _compiled(_KERNELS)
_INDUCTOR_PATTERNS = _compiled(_INDUCTOR_KERNELS)
_STRONG_PATTERNS = _compiled(_STRONG_OPERATORS)
_WEAK_PATTERNS = _compiled(_WEAK_OPERATORS)


@lru_cache(maxsize=1 << 16)
def category_of_kernel_name(name: str) -> Category:
    """The kind of work that a kernel's own name speaks of; OTHER if it says nothing."""
    plain = _NOT_THE_WORK.sub("", name.lower())
    patterns = _INDUCTOR_PATTERNS if _INDUCTOR.match(plain) else _KERNEL_PATTERNS
    return _first_match(patterns, plain) or Category.OTHER


@lru_cache(maxsize=1 << 16)
def category_claimed_by_operator(name: str) -> Category | None:
    """The kind that everything inside an operator or annotation belongs to, if it is special."""
    return _first_match(_STRONG_PATTERNS, name.lower())


@lru_cache(maxsize=1 << 16)
def category_hinted_by_operator(name: str) -> Category | None:
    """The kind of an operator's own kernels, for those whose own names say nothing."""
    return _first_match(_WEAK_PATTERNS, name.lower())


def category_of_operator(name: str) -> Category | None:
    """The kind of work that an operator computes itself, as on a CPU."""
    return category_claimed_by_operator(name) or category_hinted_by_operator(name)


def _first_match(
    patterns: tuple[tuple[Category, re.Pattern[str]], ...], name: str
) -> Category | None:
    told = name[:_TELLING_CHARACTERS]
    for category, pattern in patterns:
        if pattern.search(told):
            return category
    return None
