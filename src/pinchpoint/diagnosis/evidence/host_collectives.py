"""Collectives of a backend that runs on the host (gloo, MPI, UCC), in programs on CPUs.

The backend has threads of its own; the thread of the steps waits for them outside of any operator.
"""

from math import prod

import numpy as np

from pinchpoint.analysis.host.input_arguments import input_dtypes, tensor_shapes
from pinchpoint.analysis.host.on_cpu import first_elements
from pinchpoint.analysis.ranks.blocked import ISSUES
from pinchpoint.analysis.steps.in_steps import judged_steps, rows_in_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Table, Trace
from pinchpoint.trace.arrays import Ints, Mask, Rows
from pinchpoint.trace.intervals import Intervals, covered_before, flatten
from pinchpoint.trace.names import rows_named

BACKENDS = ("gloo:", "mpi:", "ucc:")
_USUAL_BYTES = 4  # an element of float32: the type of a list of tensors is not recorded
_SIZE_BYTES = {"double": 8, "long int": 8, "c10::Half": 2, "c10::BFloat16": 2, "bool": 1}


@dataclass(frozen=True, eq=False)
class HostCalls:
    """Collectives of the judged steps, in order of time; arrays of one length."""

    rows: Rows  # of host_ops
    step: Ints  # position among the judged steps
    bytes: Ints  # of the first tensor of each; -1 where shapes were not recorded
    alone_ns: Ints  # during which the thread of the steps ran no operator

    def of(self, kept: Mask) -> "HostCalls":
        """Some of them."""
        return HostCalls(self.rows[kept], self.step[kept], self.bytes[kept], self.alone_ns[kept])


def host_calls(trace: Trace, kinds: tuple[str, ...]) -> HostCalls | None:
    """The backend's calls of these kinds (without their backend's name); None without any."""
    host = trace.host_ops
    if host is None:
        return None
    mine = rows_named(trace, host, lambda name: name.startswith(BACKENDS))
    mine &= (host["kind"] == HostKind.ANNOTATION) & rows_in_steps(trace, host)
    rows = _in_time(host, mine)
    wanted = {backend + kind for backend in BACKENDS for kind in kinds}
    chosen = rows_named(trace, host, wanted.__contains__)[rows]
    sizes, rows = _bytes(trace, rows)[chosen], rows[chosen]
    if not len(rows):
        return None
    works = working(trace)
    start, end = host["start_ns"][rows], host.end_ns[rows]
    covered = covered_before(works, end) - covered_before(works, start)
    return HostCalls(rows, judged_steps(trace).step_of(start), sizes, end - start - covered)


def working(trace: Trace) -> Intervals:
    """When the thread of the steps ran operators, but for those that only issue a collective."""
    host = trace.host_ops
    assert host is not None
    works = (host["thread"] == steps(trace).thread) & (host["kind"] == HostKind.OPERATOR)
    works &= ~rows_named(trace, host, lambda name: name.startswith(ISSUES))
    return flatten(host["start_ns"][works], host.end_ns[works])


def _in_time(host: Table, wanted: Mask) -> Rows:
    rows = np.flatnonzero(wanted)
    return rows[np.argsort(host["start_ns"][rows], kind="stable")]


def _bytes(trace: Trace, rows: Rows) -> Ints:
    """Of the first tensor of each of the backend's calls in the steps; -1 where nothing tells.

    A window that was lent inputs has those of operators: as many calls issued as made are the same.
    """
    host = trace.host_ops
    assert host is not None
    issued = rows_named(trace, host, lambda name: name.startswith("c10d::"))
    at = _in_time(host, issued & rows_in_steps(trace, host))
    own = first_elements(trace)[rows]
    if len(at) != len(rows) or (own >= 0).all():
        at = rows
    shapes, types = host.filled("shapes", -1)[at].tolist(), host.filled("dtypes", -1)[at].tolist()
    return np.array([_size(trace, *pair) for pair in zip(shapes, types, strict=True)], np.int64)


def _size(trace: Trace, shapes: int, types: int) -> int:
    first = next(iter(tensor_shapes(trace.names[shapes])), None) if shapes >= 0 else None
    if first is None:
        return -1
    named = (input_dtypes(trace.names[types]) or ("",))[0] if types >= 0 else ""
    return prod(first) * _SIZE_BYTES.get(named, _USUAL_BYTES)
