"""What kernels that hold no products move at least, where their operator's cost is not known."""

import numpy as np

from pinchpoint.analysis.causal.limits import needed_limits
from pinchpoint.analysis.device.categories import category_of_device_ops
from pinchpoint.analysis.device.kernel_names import Category
from pinchpoint.trace import DeviceKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Floats

# A kernel of none of these kinds is one whose name nobody knows; it may hold products.
_NO_PRODUCTS = (
    Category.NORMALISATION, Category.SOFTMAX, Category.ELEMENTWISE, Category.REDUCTION,
    Category.POOLING, Category.EMBEDDING, Category.SORTING, Category.DATA_MOVEMENT,
    Category.OPTIMIZER,
)  # fmt: skip


@once_per_trace
def vector_bytes(trace: Trace) -> Floats:
    """Bytes that each row of ``device_ops`` needs to move, as its limit counts them; NaN for what
    is no kernel, may hold products, or has no known limit."""
    ops = trace.device_ops
    if ops is None:
        return np.zeros(0)
    vector = np.isin(category_of_device_ops(trace), [int(kind) for kind in _NO_PRODUCTS])
    vector &= ops["kind"] == DeviceKind.KERNEL
    found: Floats = np.where(vector, needed_limits(trace).bytes, np.nan)
    return found
