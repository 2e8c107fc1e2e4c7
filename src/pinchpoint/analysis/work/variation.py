"""Calls of one operator on equal shapes that take very different times within one recording.

The same work at another layout, by another kernel (an algorithm that is searched for or compiled
anew), or at another rate (what ran beside it, where its data was).
"""

from typing import Literal

import numpy as np

from pinchpoint.analysis.host.input_arguments import tensor_shapes
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask, Rows, distinct_rows

# Equal work on equal data varies by a fifth with clocks and caches; twice is another thing.
FAR_RATIO = 2.0
FEWEST_CALLS = 4  # of one operator and its shapes: fewer have no usual time
LEAST_NS = 20_000  # of a call: shorter ones are starts and tails of kernels
USUAL_PERCENTILE, SLOW_PERCENTILE = 25, 95  # single calls at the ends say nothing

Why = Literal["another layout", "other arguments", "another kernel", "another rate"]


@dataclass(frozen=True)
class Variation:
    """One operator on inputs of one kind."""

    name: str
    shapes: str  # of its tensors, for people
    calls: float  # a step
    usual_ns: int  # of a call: the lower quartile
    slow_ns: int  # the 95th percentile
    excess_ns: int  # a step, beyond the usual time
    why: Why
    kernels: tuple[str, str]  # that most of a usual and of a slow call's time goes to


@once_per_trace
def variations(trace: Trace) -> tuple[Variation, ...]:
    """Most excess first; none where shapes were not recorded."""
    ops, host = trace.device_ops, trace.host_ops
    if ops is None or host is None or not len(host):
        return ()
    calls, mine = launched_calls(trace), np.flatnonzero(device_ops_in_steps(trace))
    mine = mine[calls.operator[mine] < len(host)]
    operator, member = np.unique(calls.operator[mine], return_inverse=True)
    if not len(operator):
        return ()
    took = np.bincount(member, ops["duration_ns"][mine]).astype(np.int64)
    kernel = _longest(ops["name"][mine].astype(np.int64), ops["duration_ns"][mine], member)
    shapes = host.filled("shapes", -1)[operator].astype(np.int64)
    alike, group = distinct_rows(
        host["name"][operator].astype(np.int64),
        shapes,
        host.filled("dtypes", -1)[operator].astype(np.int64),
    )
    layout = host.filled("strides", -1)[operator].astype(np.int64)
    values = host.filled("values", -1)[operator].astype(np.int64)
    found = []
    order = np.argsort(group, kind="stable")
    edges = np.searchsorted(group[order], np.arange(len(alike) + 1))
    for at, (name, shape, _) in enumerate(alike.tolist()):
        rows = order[edges[at] : edges[at + 1]]
        if shape >= 0 and len(rows) >= FEWEST_CALLS:
            one = _variation(
                trace, (name, shape), took[rows], (layout[rows], values[rows], kernel[rows])
            )
            found += [one] if one is not None else []
    return tuple(sorted(found, key=lambda one: (-one.excess_ns, one.name, one.shapes)))


def _variation(
    trace: Trace, what: tuple[int, int], took: Ints, facts: tuple[Ints, Ints, Ints]
) -> Variation | None:
    usual, slow = np.percentile(took, (USUAL_PERCENTILE, SLOW_PERCENTILE), method="nearest")
    if slow < max(FAR_RATIO * usual, LEAST_NS):
        return None
    fast, late = took <= usual, took >= FAR_RATIO * usual
    steps = max(len(judged_steps(trace)), 1)
    kernel = facts[2]
    kernels = int(kernel[fast][0]), int(kernel[late][np.argmax(took[late])])
    return Variation(
        name=trace.names[what[0]],
        shapes=" ".join("x".join(map(str, s)) for s in tensor_shapes(trace.names[what[1]])),
        calls=len(took) / steps,
        usual_ns=int(usual),
        slow_ns=int(slow),
        excess_ns=int(np.maximum(took - usual, 0).sum() / steps),
        why=_why(facts, fast, late),
        kernels=(trace.names[kernels[0]], trace.names[kernels[1]]),
    )


def _why(facts: tuple[Ints, Ints, Ints], fast: Mask, late: Mask) -> Why:
    """The first of layout, arguments and kernel that no slow call shares with a usual one."""
    whys: tuple[Why, ...] = ("another layout", "other arguments", "another kernel")
    for of, why in zip(facts, whys, strict=True):
        if (of >= 0).all() and not set(of[late].tolist()) & set(of[fast].tolist()):
            return why
    return "another rate"


def _longest(name: Ints, took: Ints, member: Rows) -> Ints:
    """The kernel that most of each operator call's time goes to: its longest."""
    order = np.lexsort((took, member))
    last = np.append(np.flatnonzero(np.diff(member[order])), len(order) - 1)
    found: Ints = name[order[last]]
    return found
