"""When all gradients were set to zero, in a recording that does not mark its optimizer.

``torch.optim`` annotates its steps. A program that updates its weights otherwise still has to
begin each sum of gradients at zero: ``zero_grad(set_to_none=False)`` calls ``aten::zero_`` once
a gradient, and each backward pass ends in one ``AccumulateGrad`` a gradient. Where between two
such runs as many whole backward passes lie each time, the passes are micro-steps of one step.
"""

import numpy as np

from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Ints

FEWEST_RESETS = 3  # two whole steps between them
FEWEST_GRADIENTS = 2  # a single zero_ is that of some buffer
_ZERO, _SUM = "aten::zero_", "torch::autograd::AccumulateGrad"


def accumulated_steps(trace: Trace) -> Ints | None:
    """Ends of the runs in which all gradients are set to zero, of steps with several backward
    passes; None where the recording does not show such steps."""
    host = trace.host_ops
    if host is None or not len(host):
        return None
    kind = np.array([(name == _ZERO) + 2 * (name == _SUM) for name in trace.names], np.int64)
    rows = np.flatnonzero(kind[host["name"]] > 0)
    rows = rows[np.argsort(host["start_ns"][rows], kind="stable")]
    zero = kind[host["name"][rows]] == 1
    edges = np.flatnonzero(np.diff(zero, prepend=not zero[:1].any(), append=not zero[-1:].any()))
    length = np.diff(edges)
    runs = np.flatnonzero(zero[edges[:-1]])
    if len(runs) < FEWEST_RESETS:
        return None
    gradients = int(length[runs].max())
    whole = runs[length[runs] == gradients]
    summed = np.append(0, np.cumsum(~zero))
    between = np.diff(summed[edges[whole]])
    passes = between // max(gradients, 1)
    if len(whole) < FEWEST_RESETS or gradients < FEWEST_GRADIENTS or passes[0] < 2:
        return None
    if (between != passes[0] * gradients).any():
        return None
    ends: Ints = host.end_ns[rows[edges[whole + 1] - 1]]
    return ends
