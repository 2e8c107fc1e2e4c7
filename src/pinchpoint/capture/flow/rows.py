"""Work that is done on each row of the last dimension by itself."""

from typing import Any

from pinchpoint.capture.flow.operations import Operation

# Each row of what they give is made of the same one of what they take; and which argument says so.
_SOFTMAXES = {"_softmax": 1, "_log_softmax": 1, "softmax": 1, "log_softmax": 1}
_SOFTMAXES |= {"_softmax_backward_data": 2, "_log_softmax_backward_data": 2}
_NORMS = {"native_layer_norm": 1, "layer_norm": 1, "_fused_rms_norm": 1, "rms_norm": 1}
_NORMS |= {"native_layer_norm_backward": 2, "_fused_rms_norm_backward": 2}

_SUMS = frozenset(("sum", "mean", "amax", "amin", "argmax", "argmin", "logsumexp", "prod"))


def is_of_rows(one: Operation) -> bool:
    """Whether it works on each row of the last dimension by itself: a softmax, a norm."""
    name = one.kind.name.removeprefix("aten::")
    given = one.plain[0] if one.plain else ()
    at = _SOFTMAXES.get(name, _NORMS.get(name, 0))
    if not at or len(given) <= at:
        return False
    if name in _NORMS:
        return len(given[at]) == 1
    return given[at] in ("-1", str(len(one.shape) - 1))


def sums_rows(one: Operation) -> bool:
    """Whether it gives one number for each row of the last dimension of its first tensor."""
    if one.kind.name.removeprefix("aten::") not in _SUMS or not one.reads:
        return False
    shape = one.reads[0][1][1]
    given: Any = one.plain[0] if one.plain else ()
    dimension = given[1] if len(given) > 1 else None
    if isinstance(dimension, tuple) and len(dimension) == 1:
        (dimension,) = dimension
    over_last = dimension in ("-1", str(len(shape) - 1))
    return over_last and len(shape) > 0 and one.shape in (shape[:-1], (*shape[:-1], 1))
