"""Gradients of gradients: operators by the numbers that autograd gives them."""

import numpy as np

from pinchpoint.analysis.work.differentiated_twice import differentiated_twice
from program import Program


def operator(p, name, sequence=None):
    with p.row(name, **({} if sequence is None else {"sequence": sequence})):
        p.kernel(name, 10)


def node(p, name, sequence, *inside):
    """A node of a backward pass; ``inside``: operators with their numbers."""
    with (
        p.row(f"autograd::engine::evaluate_function: {name}", sequence=sequence),
        p.row(name, sequence=sequence),
    ):
        for one in inside:
            operator(p, *one)


def told(p):
    trace = p.trace()
    rows = np.flatnonzero(differentiated_twice(trace))
    return [
        trace.names[n] for n in trace.host_ops["name"][rows] if "Backward0" not in trace.names[n]
    ]


def test_the_first_pass_the_second_and_the_operators_under_both():
    p = Program()
    for _ in p.steps(1):
        operator(p, "aten::tanh", 1)
        operator(p, "aten::relu", 5)
        node(p, "TanhBackward0", 1, ("aten::tanh_backward", 2), ("aten::mul", 3))
        node(p, "MulBackward0", 3, ("aten::neg",))
        node(p, "TanhBackwardBackward0", 2, ("aten::square",))
        node(p, "TanhBackward0", 1, ("aten::add",))
        node(p, "ReluBackward0", 5, ("aten::threshold_backward",))
    assert told(p) == [
        "aten::tanh", "aten::tanh_backward", "aten::mul", "aten::neg", "aten::square", "aten::add"
    ]  # fmt: skip


def test_one_backward_pass_is_differentiated_once():
    p = Program()
    for _ in p.steps(1):
        operator(p, "aten::tanh", 1)
        node(p, "TanhBackward0", 1, ("aten::tanh_backward",))
    assert told(p) == []
