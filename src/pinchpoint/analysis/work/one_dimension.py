"""Which device work is of convolutions over one dimension: they have no channels-last order."""

import numpy as np

from pinchpoint.analysis.host.ancestry import parents, within
from pinchpoint.analysis.host.attribution import forward_rows
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.names import rows_named

_NAMES = ("aten::conv1d", "aten::conv_transpose1d")


@once_per_trace
def over_one_dimension(trace: Trace) -> Mask:
    """Rows of ``device_ops`` of such convolutions, and of their backward pass."""
    host, calls = trace.host_ops, launched_calls(trace)
    if host is None or not len(host):
        return np.zeros(len(calls.operator), np.bool_)
    one = rows_named(trace, host, lambda name: name.startswith(_NAMES))
    inside = within(parents(host), one)
    forward = np.append(forward_rows(trace), len(host))
    found: Mask = inside[forward[calls.operator]]
    return found
