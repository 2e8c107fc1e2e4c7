"""Kernels that Inductor writes: their arguments are recorded, their arithmetic is not.

Each tensor argument is an input or an output and moves once, so bytes are known to within what is
updated in place. FLOPs of fused elementwise work are not known, and None.
"""

from pinchpoint.analysis.costs.call import Cost, OperatorCall

PREFIX = "triton_"
TEMPLATE = "triton_tem_"  # a product from a template; its sizes are not among the arguments


def compiled(call: OperatorCall) -> Cost | None:
    """A generated Triton kernel."""
    moved = sum(call.bytes(i) for i in range(len(call.shapes)))
    return Cost(None, moved) if moved else None
