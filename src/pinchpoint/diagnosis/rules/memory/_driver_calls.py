"""Driver calls that get and give back device memory: who makes them."""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.ancestry import parents, within
from pinchpoint.trace import HostKind, Trace


def called_by_operators(trace: Trace) -> NDArray[np.bool_]:
    """Runtime calls made by operators and nodes of the backward pass, not by the program itself."""
    calls, host = trace.api_calls, trace.host_ops
    assert calls is not None
    if host is None or not len(host):
        return np.zeros(len(calls), np.bool_)
    operator = within(parents(host), host["kind"] == HostKind.OPERATOR)[:-1]
    return np.append(operator, False)[calls.filled("host_op", len(host))]
