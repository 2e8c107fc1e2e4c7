"""What ranks that share out their work hand each other afterwards, and how long that takes."""

import numpy as np

from pinchpoint.analysis.device.collectives import collectives
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step
from pinchpoint.diagnosis.evidence.host_collectives import host_calls
from pinchpoint.diagnosis.evidence.vain_work import rows_of, run_by_dispatcher
from pinchpoint.trace import Trace
from pinchpoint.trace.names import rows_named
from pinchpoint.trace.run_values import VainWork

# As the results that are compared; what is smaller tells of the latency of a call, not of a rate.
LEAST_BYTES = 1 << 20


def results_bytes(trace: Trace, work: VainWork) -> int | None:
    """Bytes a step of the results that other work may read: of operations after each other, those
    of the last. None where sizes were not noted, or no operation is found.

    An operation between them that is not in the note, however small, makes one more.
    """
    host, values = trace.host_ops, trace.run.values if trace.run else None
    if host is None or values is None or not all(one.bytes_each for one in work.operations):
        return None
    sizes = np.zeros(len(host), np.int64)
    for one in work.operations:
        sizes[rows_of(trace, (one,))] = one.bytes_each
    views = rows_named(trace, host, frozenset(values.views).__contains__)
    rows = np.flatnonzero((sizes > 0) | run_by_dispatcher(trace) & ~views)
    rows = rows[np.argsort(host["start_ns"][rows], kind="stable")]
    step = judged_steps(trace).step_of(host["start_ns"][rows])
    last = np.append((sizes[rows][1:] == 0) | (np.diff(step) > 0), True)
    total = int(sizes[rows][last].sum())
    return round(per_step(trace, total)) if total else None


def gather_ns(trace: Trace, size_bytes: int, ranks: int) -> int | None:
    """How long an all-gather of that many bytes takes, of which each rank has its part, at the best
    bus rate that a collective of this recording reached: of one rank, the others are waits.

    None where it has no large collective of known size.
    """
    rate = max((r for r in (_device_rate(trace), _host_rate(trace, ranks)) if r), default=None)
    return None if rate is None else round(1e9 * size_bytes * (ranks - 1) / ranks / rate)


def _device_rate(trace: Trace) -> float | None:
    found = collectives(trace)
    if found is None:
        return None
    rates = found.bus_bytes_per_s()[found.bytes >= LEAST_BYTES]
    return float(np.nanmax(rates)) if (~np.isnan(rates)).any() else None


def _host_rate(trace: Trace, ranks: int) -> float | None:
    """Of gloo's or MPI's all-reduces among these ranks, in bytes/s; a ring moves each byte twice,
    but for what a rank has itself."""
    found, host = host_calls(trace, ("all_reduce", "allreduce")), trace.host_ops
    if found is None or host is None:
        return None
    took = host["duration_ns"][found.rows]
    large = (found.bytes >= LEAST_BYTES) & (took > 0)
    if not large.any():
        return None
    traffic = 2 * (ranks - 1) / ranks
    return float((traffic * 1e9 * found.bytes[large] / took[large]).max())
