"""Recurrent layers: every token goes through every matrix, one step after the other.

Arguments as in ATen's ``_cudnn_rnn`` and ``_cudnn_rnn_backward``; weights are a list.
"""

from typing import NamedTuple

from pinchpoint.analysis.costs.call import Cost, OperatorCall
from pinchpoint.analysis.host.input_arguments import elements


class _Where(NamedTuple):
    """Positions of the output's gradient (-1: none), number of layers and ``batch_first``."""

    gradient: int
    layers: int
    batch_first: int


_SPELLINGS = {
    "aten::_cudnn_rnn": _Where(-1, 9, 10),
    "aten::_cudnn_rnn_backward": _Where(7, 13, 14),
}
NAMES = tuple(_SPELLINGS)


def recurrent(call: OperatorCall) -> Cost | None:
    """A whole layer stack over a sequence; its steps depend on each other, layers need not."""
    x, weights, where = call.shape(0), call.shape_list(1), _SPELLINGS[call.name]
    if x is None or weights is None or len(x) != 3:
        return None
    matrices = sum(elements(w) for w in weights if len(w) == 2)
    tokens = x[0] * x[1]
    passes = 1 if where.gradient < 0 else 2  # gradients of the inputs and of the weights
    width = call.element_bytes(0)
    moved = 2 * call.bytes(0) + sum(map(elements, weights)) * width
    if where.gradient >= 0:
        moved += 2 * call.bytes(where.gradient)
    length = x[1] if call.flag(where.batch_first) else x[0]
    return Cost(2 * tokens * matrices * passes, moved * passes, matrix=True, in_turn=length)


def cell(call: OperatorCall) -> Cost | None:
    """A fused gate of one time step: its inputs are read, a state is written."""
    tensors = call.tensors()
    if not tensors:
        return None
    read = sum(call.bytes(i) for i in tensors)
    return Cost(10 * call.size(tensors[0]), read + call.bytes(tensors[-1]))
