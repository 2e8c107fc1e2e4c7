"""Optimizer steps over lists of tensors. The type in a list is not recorded: float32 is assumed,
the type that optimizers keep their state in."""

from pinchpoint.analysis.costs.call import Cost, OperatorCall
from pinchpoint.analysis.host.input_arguments import elements

_STATE_BYTES = 4  # float32

# Operations and tensors moved (reads and writes) an element of the parameters.
_ADAM = (14, 7)  # p, g, m, v read; p, m, v written
_SGD = (4, 5)  # p, g, momentum read; p, momentum written
_ADAGRAD = (6, 5)  # p, g, sum read; p, sum written
FUSED = {
    "aten::_fused_adam_": _ADAM,
    "aten::_fused_adamw_": _ADAM,
    "aten::_fused_sgd_": _SGD,
    "aten::_fused_adagrad_": _ADAGRAD,
}
_UNARY_LISTS = {"sqrt", "neg", "exp", "reciprocal", "abs", "zero"}


def fused(call: OperatorCall) -> Cost | None:
    """``_fused_adamw_`` and its kin; None where the shapes in the lists were not recorded."""
    count = _elements_of(call, 0)
    if count is None:
        return None
    operations, moves = FUSED[call.name]
    return Cost(operations * count, moves * count * _STATE_BYTES)


def foreach(call: OperatorCall) -> Cost | None:
    """``_foreach_add_`` and its kin: one operation an element, a read for each list, a write."""
    count = _elements_of(call, 0)
    if count is None:
        return None
    lists = sum(1 for i in range(len(call.shapes)) if _elements_of(call, i) == count)
    operations = 2 if "addc" in call.name or "lerp" in call.name else 1
    return Cost(operations * count, (lists + 1) * count * _STATE_BYTES)


def _elements_of(call: OperatorCall, i: int) -> int | None:
    shapes = call.shape_list(i)
    if shapes is None:
        return None
    total = sum(elements(s) for s in shapes)
    return total if any(shapes) else None  # all empty: the recorder left the shapes out
