"""Collectives of a backend that runs on the host (gloo, MPI, UCC), in programs on CPUs.

The backend has threads of its own; the thread of the steps waits for them outside of any operator.
"""

from math import prod

import numpy as np

from pinchpoint.analysis.host.ancestry import parents, subtree_sums
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


@dataclass(frozen=True, eq=False)
class IssuedCalls:
    """The backend's calls of the judged steps, each with the operator that issued it."""

    issued: Rows  # of host_ops, of the same length
    made: HostCalls


def issued_calls(trace: Trace) -> IssuedCalls | None:
    """All of them, in order of time; None where more or fewer were issued than made."""
    host = trace.host_ops
    if host is None:
        return None
    issues = rows_named(trace, host, lambda name: name.startswith("c10d::"))
    issued = _in_time(host, issues & rows_in_steps(trace, host))
    # An operator of the program's own that issues a call (a function of autograd) waits in it.
    waiting = subtree_sums(parents(host), issues.astype(np.int64)) > 0
    made = _calls(trace, _made(trace), _working(trace, waiting))
    return IssuedCalls(issued, made) if len(issued) == len(made.rows) > 0 else None


def host_calls(trace: Trace, kinds: tuple[str, ...]) -> HostCalls | None:
    """The backend's calls of these kinds (without their backend's name); None without any."""
    host = trace.host_ops
    if host is None:
        return None
    rows = _made(trace)
    wanted = {backend + kind for backend in BACKENDS for kind in kinds}
    chosen = rows_named(trace, host, wanted.__contains__)[rows]
    return _calls(trace, rows, working(trace)).of(chosen) if chosen.any() else None


def _made(trace: Trace) -> Rows:
    host = trace.host_ops
    assert host is not None
    mine = rows_named(trace, host, lambda name: name.startswith(BACKENDS))
    mine &= (host["kind"] == HostKind.ANNOTATION) & rows_in_steps(trace, host)
    return _in_time(host, mine)


def _calls(trace: Trace, rows: Rows, works: Intervals) -> HostCalls:
    host = trace.host_ops
    assert host is not None
    sizes = _bytes(trace, rows)
    start, end = host["start_ns"][rows], host.end_ns[rows]
    covered = covered_before(works, end) - covered_before(works, start)
    return HostCalls(rows, judged_steps(trace).step_of(start), sizes, end - start - covered)


def shortest_at_place(trace: Trace, calls: HostCalls) -> Ints:
    """What the shortest call at the same place in any step took: others waited for a late rank."""
    host = trace.host_ops
    assert host is not None
    in_each = np.bincount(calls.step, minlength=len(judged_steps(trace)))
    if (in_each != in_each[0]).any():
        return np.zeros(len(calls.rows), np.int64)
    took = host["duration_ns"][calls.rows].reshape(-1, int(in_each[0]))
    least: Ints = np.tile(took.min(axis=0), len(took))
    return np.minimum(least, calls.alone_ns)


def working(trace: Trace) -> Intervals:
    """When the thread of the steps ran operators, but for those that only issue a collective."""
    host = trace.host_ops
    assert host is not None
    return _working(trace, rows_named(trace, host, lambda name: name.startswith(ISSUES)))


def _working(trace: Trace, waiting: Mask) -> Intervals:
    host = trace.host_ops
    assert host is not None
    works = (host["thread"] == steps(trace).thread) & (host["kind"] == HostKind.OPERATOR) & ~waiting
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
