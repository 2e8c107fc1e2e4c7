"""Sizes that a convolution's own call does not tell, from the backward calls of the same sizes.

Without values no stride is recorded, and the sizes of weights are one: the output of a forward call
and the weights of their gradient are unknown. The call that makes both gradients has all three
tensors. What several convolutions of one program give differently stays unknown.
"""

from pinchpoint.analysis.costs import Cost, OperatorCall
from pinchpoint.analysis.costs.convolution import (
    FORWARD_NAMES,
    GRADIENTS,
    forward_into,
    gradient,
)
from pinchpoint.analysis.host.input_arguments import Shape, input_shapes
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import distinct

# Positions of the input, the gradient of the output and the weights.
_BOTH_GRADIENTS = {
    "aten::cudnn_convolution_backward": (0, 1, 2),
    "aten::miopen_convolution_backward": (0, 1, 2),
    "aten::convolution_backward": (1, 0, 2),
    "aten::convolution_backward_overrideable": (1, 0, 2),
}
_Pair = tuple[Shape, Shape]


@dataclass(frozen=True, eq=False)
class Convolutions:
    """What the backward calls of a trace show, where all of them agree."""

    outputs: dict[_Pair, Shape]  # by input and weights
    weights: dict[_Pair, Shape]  # by gradient of the output and input


@once_per_trace
def convolutions(trace: Trace) -> Convolutions:
    """The sizes that belong together."""
    outputs: dict[_Pair, set[Shape]] = {}
    weights: dict[_Pair, set[Shape]] = {}
    for x, grad, weight in _triples(trace):
        outputs.setdefault((x, weight), set()).add(grad)
        weights.setdefault((grad, x), set()).add(weight)
    return Convolutions(_only(outputs), _only(weights))


def _triples(trace: Trace) -> set[tuple[Shape, Shape, Shape]]:
    host, found = trace.host_ops, set[tuple[Shape, Shape, Shape]]()
    if host is None:
        return found
    named = {name: at for name, at in _BOTH_GRADIENTS.items() if name in trace.names}
    for name, at in named.items():
        rows = (host["name"] == trace.names.index(name)) & host.known("shapes")
        for text in distinct(host["shapes"][rows]).tolist():
            shapes = input_shapes(trace.names[text]) or ()
            x, grad, weight = (_tensor(shapes[i]) if i < len(shapes) else None for i in at)
            if x and grad and weight:
                found.add((x, grad, weight))
    return found


def _tensor(shape: Shape | tuple[Shape, ...] | None) -> Shape | None:
    return tuple(n for n in shape if isinstance(n, int)) if shape is not None else None


def _only(found: dict[_Pair, set[Shape]]) -> dict[_Pair, Shape]:
    return {pair: next(iter(shapes)) for pair, shapes in found.items() if len(shapes) == 1}


def by_its_backward(call: OperatorCall, sizes: Convolutions) -> Cost | None:
    """What a convolution costs whose own call says too little."""
    if call.name in FORWARD_NAMES:
        x, weight = call.shape(0), call.shape(1)
        out = None if x is None or weight is None else sizes.outputs.get((x, weight))
        return None if out is None else forward_into(call, out)
    if call.name in GRADIENTS:
        grad, x = call.shape(1), call.shape(2)
        weights = None if grad is None or x is None else sizes.weights.get((grad, x))
        return None if weights is None else gradient(call, weights)
    return None
