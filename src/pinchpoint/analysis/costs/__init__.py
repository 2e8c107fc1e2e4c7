"""What operators must cost, from their names, shapes and types.

``cost_of`` knows products, convolutions, attention, norms, elementwise work, lookups, sorts, losses
and optimizers of PyTorch, and the memory traffic of compiled kernels. FLOPs of products,
convolutions and attention agree with ``torch.utils.flop_counter`` where that ignores no mask.
"""

from collections.abc import Callable
from dataclasses import replace

from pinchpoint.analysis.costs import (
    convolution,
    fourier,
    moving,
    pointwise,
    products,
    recurrent,
    serving,
    sorting,
)
from pinchpoint.analysis.costs.call import Cost, OperatorCall, once_per_call

__all__ = ["Cost", "OperatorCall", "cost_of"]

Model = Callable[[OperatorCall], Cost | None]

_MODELS: dict[str, Model] = {
    "aten::mm": products.mm,
    "aten::_scaled_mm": products.mm,
    "aten::_int_mm": products.mm,
    "aten::addmm": products.addmm,
    "aten::addmm_": products.addmm,
    "aten::_addmm_activation": products.addmm,
    "aten::linear": products.linear,
    "aten::bmm": products.bmm,
    "aten::baddbmm": products.baddbmm,
    "aten::baddbmm_": products.baddbmm,
    "aten::matmul": products.matmul,
    "aten::mv": products.mv,
    "aten::addmv": products.mv,
    "aten::addmv_": products.mv,
    "aten::dot": products.dot,
    "aten::convolution_backward": convolution.backward,
    "aten::_softmax": pointwise.softmax,
    "aten::_log_softmax": pointwise.softmax,
    "aten::_safe_softmax": pointwise.softmax,
    "aten::_softmax_backward_data": pointwise.softmax_backward,
    "aten::_log_softmax_backward_data": pointwise.softmax_backward,
    "aten::nll_loss_forward": pointwise.nll_loss,
    "aten::nll_loss_backward": pointwise.nll_loss_backward,
    "aten::gather": pointwise.gather,
    "aten::index_select": pointwise.index_select,
    "aten::embedding": pointwise.index_select,
    "aten::embedding_dense_backward": pointwise.embedding_backward,
    "aten::cat": pointwise.concatenation,
    "aten::stack": pointwise.concatenation,
}
_MODELS |= dict.fromkeys(convolution.FORWARD_NAMES, convolution.forward)
_MODELS |= dict.fromkeys(products.ATTENTION, products.attention)
_MODELS |= dict.fromkeys(pointwise.FUSED_OPTIMIZERS, pointwise.fused_optimizer)
_MODELS |= dict.fromkeys(recurrent.NAMES, recurrent.recurrent)
_MODELS |= dict.fromkeys(fourier.NAMES, fourier.fourier)
_MODELS |= dict.fromkeys(
    (
        f"aten::_thnn_fused_{kind}_cell{ending}"
        for kind in ("gru", "lstm")
        for ending in ("", "_backward", "_backward_impl")
    ),
    recurrent.cell,
)
_MODELS |= dict.fromkeys(serving.CACHE_WRITES, serving.cache_write)
_MODELS |= dict.fromkeys(serving.SCALED_PRODUCTS, serving.scaled_product)
_MODELS |= dict.fromkeys(serving.FUSED_EXPERTS, serving.fused_experts)
_MODELS |= dict.fromkeys(serving.PAGED_ATTENTION, serving.paged_attention)
_MODELS |= dict.fromkeys(("aten::_grouped_mm", "aten::_scaled_grouped_mm"), serving.grouped_product)
_MODELS |= dict.fromkeys(convolution.GRADIENTS, convolution.gradient)
_MODELS |= dict.fromkeys(
    (
        "aten::native_layer_norm", "aten::native_group_norm", "aten::native_batch_norm",
        "aten::cudnn_batch_norm", "aten::miopen_batch_norm", "aten::_native_batch_norm_legit",
        "aten::_fused_rms_norm", "aten::rms_norm", "aten::batch_norm_elemt",
    ),
    pointwise.norm,
)  # fmt: skip
_MODELS |= dict.fromkeys(
    (
        "aten::native_layer_norm_backward", "aten::native_group_norm_backward",
        "aten::native_batch_norm_backward", "aten::_fused_rms_norm_backward",
    ),
    pointwise.norm_backward,
)  # fmt: skip
_MODELS |= dict.fromkeys(
    ("aten::cudnn_batch_norm_backward", "aten::miopen_batch_norm_backward"),
    # their order is (input, gradient, …): the same sizes
    pointwise.norm_backward,
)
_MODELS |= dict.fromkeys(
    (
        f"aten::{name}"
        for name in ("sum", "mean", "prod", "amax", "amin", "max", "min", "argmax", "argmin", "any",
                     "all", "norm", "linalg_vector_norm", "var", "std", "var_mean", "logsumexp",
                     "count_nonzero")
    ),
    pointwise.reduction,
)  # fmt: skip
_MODELS |= dict.fromkeys(
    (f"aten::{name}" for name in ("cumsum", "cumprod", "nonzero")), pointwise.scan
)
_MODELS |= dict.fromkeys(
    (
        f"aten::{name}"
        for name in ("max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d",
                     "upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d",
                     "upsample_nearest1d", "upsample_nearest3d", "max_pool3d_with_indices")
    ),
    pointwise.pooling,
)  # fmt: skip
_MODELS |= dict.fromkeys(
    (
        f"aten::{name}_backward"
        for name in ("max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d")
    ),
    pointwise.pooling_backward,
)
_MODELS |= moving.MOVING
_MODELS |= sorting.SORTING
_MODELS |= {
    f"aten::{name}{ending}": pointwise.elementwise
    for name in pointwise.ELEMENTWISE
    for ending in ("", "_")
}


@once_per_call
def cost_of(call: OperatorCall) -> Cost | None:
    """The least that a call costs; None without a model or where the recording says too little.

    Its bytes are None where it reads a type that nobody knows the size of.
    """
    cost = _modelled(call)
    return replace(cost, bytes=None) if cost is not None and call.has_unknown_type() else cost


def _modelled(call: OperatorCall) -> Cost | None:
    model = _MODELS.get(call.name)
    if model is not None:
        return model(call)
    if call.name.startswith(("aten::_foreach_", "aten::_amp_foreach_")):
        return pointwise.foreach_optimizer(call)
    if call.name.startswith(products.COMPILED_TEMPLATE):
        return products.template(call)
    if call.name.startswith(pointwise.COMPILED_PREFIX):
        return pointwise.compiled(call)
    return serving.packed_product(call) or serving.experts_by_sizes(call) or serving.streaming(call)
