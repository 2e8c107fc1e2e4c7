"""Forward, backward and optimizer: how a step's device work is split, without stacks.

Autograd's nodes are the backward pass, whatever runs in them; operators in them that are numbered
again are recomputation. The optimizer is what runs inside ``Optimizer.step`` as PyTorch marks it,
or what only optimizers call. The rest is the forward pass, with the loss and what is around it.
"""

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.attribution import backward_nodes, recomputed_rows
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import DeviceKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, KeptRows
from pinchpoint.trace.names import rows_named

FORWARD, RECOMPUTED, BACKWARD, OPTIMIZER, BETWEEN_RANKS = range(5)
LABELS = ("forward", "forward, done again", "backward", "optimizer", "between ranks")
_OPTIMIZER = regex(
    r"^Optimizer\.(step|zero_grad)#|torch/optim/\w+\.py\(\d+\): _?(step|(single|multi)_tensor)"
    r"|^aten::_fused_(adam|adamw|sgd|adagrad)_$"
)


@dataclass(frozen=True)
class Phase:
    """One phase; means of the judged steps."""

    label: str
    device_ns: int  # sum of its device operations
    operations: float
    forward_ratio: float | None  # of the forward pass; backward takes twice as long, as a rule


@once_per_trace
def phases(trace: Trace) -> tuple[Phase, ...]:
    """Those that a step has; empty without operators or without a backward pass."""
    ops, host, steps = trace.device_ops, trace.host_ops, len(judged_steps(trace))
    if ops is None or host is None or not steps or not backward_nodes(trace).any():
        return ()
    mine = device_ops_in_steps(trace)
    phase = phase_of_device_ops(trace)[mine]
    took = np.bincount(phase, ops["duration_ns"][mine], len(LABELS)) / steps
    count = np.bincount(phase, minlength=len(LABELS)) / steps
    forward = float(took[FORWARD])
    found = []
    for at, (label, ns, each) in enumerate(zip(LABELS, took.tolist(), count.tolist(), strict=True)):
        ratio = ns / forward if forward and at != BETWEEN_RANKS else None
        found += [Phase(label, round(ns), each, ratio)] if each else []
    return tuple(found)


@once_per_trace
def phase_of_device_ops(trace: Trace) -> Ints:
    """FORWARD to BETWEEN_RANKS of each row of ``device_ops``; FORWARD where nothing is known."""
    ops, host = trace.device_ops, trace.host_ops
    if ops is None:
        return np.zeros(0, np.int64)
    if host is None or not len(host):
        return np.full(len(ops), FORWARD, np.int64)
    phase = np.append(phase_of_host_ops(trace), FORWARD)[ops.filled("host_op", len(host))]
    return np.where(ops["kind"] == DeviceKind.COLLECTIVE, BETWEEN_RANKS, phase)


@once_per_trace
def phase_of_host_ops(trace: Trace) -> KeptRows:
    """FORWARD to OPTIMIZER of each row of ``host_ops``; the trace must have some."""
    host = trace.host_ops
    assert host is not None
    chain, none = parents(host), len(host)
    backward = nearest(chain, backward_nodes(trace)) < none
    optimizes = rows_named(trace, host, lambda name: _OPTIMIZER.search(name) is not None)
    out = np.where(backward, BACKWARD, FORWARD)
    out = np.where(backward & recomputed_rows(trace), RECOMPUTED, out)
    return np.where(nearest(chain, optimizes) < none, OPTIMIZER, out).astype(np.int32)
