"""Operators that PyTorch has no products in and that are not elementwise: what they must move.

Each says which tensors it reads once and how much it writes; positions of inputs are those of
ATen's native_functions.yaml. Where the size of a result stands in a scalar that may not be
recorded, only what is read counts: the least.
"""

from collections.abc import Callable, Mapping

from pinchpoint.analysis.costs.call import Cost, OperatorCall
from pinchpoint.analysis.host.input_arguments import elements

Model = Callable[[OperatorCall], Cost | None]

_INDEX_BYTES = 8  # results of type int64


def _read(call: OperatorCall, written: int = 0) -> Cost | None:
    """Every tensor once, and so many bytes of results."""
    tensors = call.tensors()
    if not tensors:
        return None
    return Cost(max(map(call.size, tensors)), sum(map(call.bytes, tensors)) + written)


def _and_written(of: int, times: float = 1.0) -> Model:
    """Everything is read, and as much as input ``of`` has is written, so many times."""

    def model(call: OperatorCall) -> Cost | None:
        return None if call.shape(of) is None else _read(call, round(times * call.bytes(of)))

    return model


def _places(of: int) -> Model:
    """Everything is read, and an index for each element of input ``of`` is written."""

    def model(call: OperatorCall) -> Cost | None:
        return None if call.shape(of) is None else _read(call, _INDEX_BYTES * call.size(of))

    return model


def _bag(call: OperatorCall) -> Cost | None:
    """``embedding_bag(table, index, offsets)``: rows are read, the sum of each bag is written."""
    table, index, offsets = call.shape(0), call.shape(1), call.shape(2)
    if table is None or len(table) != 2 or index is None:
        return None
    bags = elements(offsets) if offsets is not None else index[0]
    taken = call.size(1) * table[1]
    return Cost(taken, (taken + bags * table[1]) * call.element_bytes(0) + call.bytes(1))


def _bag_backward(call: OperatorCall) -> Cost | None:
    """The gradient of each bag is read, and added to the row of each index."""
    grad, index = call.shape(0), call.shape(1)
    if grad is None or index is None:
        return None
    added = call.size(1) * grad[-1]
    return Cost(added, call.bytes(0) + 2 * added * call.element_bytes(0) + call.bytes(1))


def _distances(call: OperatorCall) -> Cost | None:
    """``_cdist_forward(a, b)``: difference, power and sum for each pair of rows and each column."""
    a, b = call.shape(0), call.shape(1)
    if a is None or b is None or min(len(a), len(b)) < 2 or a[-1] != b[-1]:
        return None
    pairs = max(elements(a[:-2]), elements(b[:-2])) * a[-2] * b[-2]
    moved = call.bytes(0) + call.bytes(1) + pairs * call.element_bytes(0)
    return Cost(3 * pairs * a[-1], moved)


def _distances_backward(call: OperatorCall) -> Cost | None:
    """``_cdist_backward(gradient, a, b, p, distances)``: the gradient of ``a`` is written."""
    grad, a = call.shape(0), call.shape(1)
    if grad is None or a is None:
        return None
    moved = sum(map(call.bytes, call.tensors())) + call.bytes(1)
    return Cost(4 * elements(grad) * a[-1], moved)


def _drawn(call: OperatorCall) -> Cost | None:
    """``multinomial(weights, samples)``: as many samples as weights, or fewer; how long more of
    them have to search is not known."""
    weights, samples = call.shape(0), call.integers(1)
    if weights is None or samples is None or samples[0] > weights[-1]:
        return None
    return _read(call, _INDEX_BYTES * samples[0] * call.size(0) // max(weights[-1], 1))


def _nothing(call: OperatorCall) -> Cost:
    """A check of a value: one kernel."""
    return Cost(0, sum(map(call.bytes, call.tensors())))


def _named(model: Model, *names: str) -> dict[str, Model]:
    return {f"aten::{name}": model for name in names}


MOVING: Mapping[str, Model] = (
    _named(
        _read,
        "histc", "bincount", "isin", "masked_select", "mse_loss", "l1_loss", "smooth_l1_loss",
        "huber_loss", "kl_div",
        "binary_cross_entropy", "binary_cross_entropy_with_logits", "soft_margin_loss",
        "upsample_nearest1d_backward", "upsample_nearest2d_backward", "upsample_linear1d_backward",
        "upsample_nearest3d_backward", "upsample_bilinear2d_backward",
        "upsample_bicubic2d_backward", "upsample_trilinear3d_backward", "upsample_linear1d",
        "upsample_trilinear3d", "avg_pool3d", "_adaptive_avg_pool3d", "adaptive_max_pool2d",
        "adaptive_max_pool3d", "fractional_max_pool2d", "col2im", "im2col", "nll_loss2d_forward",
    )
    | _named(
        _and_written(0),
        "unique_consecutive", "reflection_pad1d", "reflection_pad2d",
        "reflection_pad3d", "replication_pad1d", "replication_pad2d", "replication_pad3d",
        "_transform_bias_rescale_qkv", "_weight_norm_interface", "_weight_norm_interface_backward",
        "channel_shuffle", "native_channel_shuffle", "pixel_shuffle", "pixel_unshuffle",
        "logcumsumexp", "cummax", "cummin", "renorm", "diag_embed", "masked_scale",
    )
    | _named(_and_written(0, 0.5), "glu")
    | _named(
        _and_written(1),
        "glu_backward", "mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward",
        "binary_cross_entropy_backward", "nll_loss2d_backward", "log_sigmoid_backward",
        "reflection_pad1d_backward", "reflection_pad2d_backward", "replication_pad2d_backward",
        "max_pool3d_with_indices_backward", "avg_pool3d_backward", "_adaptive_avg_pool3d_backward",
        "adaptive_max_pool2d_backward",
    )
    | _named(_places(1), "searchsorted")
    | _named(_places(0), "bucketize")
    | _named(_bag, "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
    | _named(_bag_backward, "_embedding_bag_dense_backward", "_embedding_bag_backward")
    | _named(_distances, "_cdist_forward")
    | _named(_distances_backward, "_cdist_backward")
    | _named(_drawn, "multinomial")
    | _named(_nothing, "_assert_async")
)  # fmt: skip
