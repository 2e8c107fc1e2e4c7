"""Operators that the host computes itself, on tensors in its own memory, instead of launching them.

An operator on device tensors calls the runtime: it launches, copies, or asks for memory. One that
calls nothing either only describes memory (a view, an empty tensor) or did its work on the CPU.
"""

import numpy as np

from pinchpoint.analysis.host.ancestry import parents, subtree_sums
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.names import rows_named

# Dispatching takes 5 to 20 µs, twice that while it is recorded; what lasts longer and launches
# nothing computes.
LEAST_COMPUTE_NS = 100_000
# An operator that is rarely so long was held up: analysis.time.stalls has the same share.
RARE_RATIO = 0.1
# Operators that describe memory and never touch the elements; one that is slow was held up.
_DESCRIBING = frozenset(
    f"aten::{name}"
    for name in (
        "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided",
        "resize_", "set_", "view", "_unsafe_view", "view_as", "reshape", "_reshape_alias", "alias",
        "as_strided", "t", "transpose", "permute", "expand", "expand_as", "squeeze", "unsqueeze",
        "slice", "select", "narrow", "split", "chunk", "unbind", "flatten", "unflatten", "detach",
        "detach_", "lift_fresh", "result_type", "unfold", "movedim", "swapaxes", "numpy_T",
        "requires_grad_", "record_stream", "is_pinned", "pin_memory", "_pin_memory", "broadcast_to",
    )
)  # fmt: skip


@once_per_trace
def computed_on_host(trace: Trace) -> Mask:
    """Rows of ``host_ops`` that are operators the CPU computed, with those inside them.

    None in a recording without runtime calls, which cannot tell the two apart.
    """
    host, calls = trace.host_ops, trace.api_calls
    if host is None or calls is None or not len(calls):
        return np.zeros(0 if host is None else len(host), np.bool_)
    called = np.zeros(len(host) + 1, np.int64)
    np.add.at(called, calls.filled("host_op", len(host)), 1)
    silent = subtree_sums(parents(host), called[:-1]) == 0
    computing = rows_named(trace, host, lambda n: n.startswith("aten::") and n not in _DESCRIBING)
    computing &= (host["kind"] == HostKind.OPERATOR) & silent
    long = computing & (host["duration_ns"] >= LEAST_COMPUTE_NS)
    names = host["name"]
    ratio = np.bincount(names, long) / np.maximum(np.bincount(names, computing), 1)
    found: Mask = long & (ratio > RARE_RATIO)[names]
    return found
