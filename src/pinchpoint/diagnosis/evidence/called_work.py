"""Work of the operators whose inputs pass a test: on the device, or of a program on the CPU."""

from collections.abc import Callable

import numpy as np

from pinchpoint.analysis.costs.call import OperatorCall
from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.replay import Change, ScaleDeviceOps, ScaleHostSpans
from pinchpoint.analysis.work.operator_work import NOT_KNOWN, call_of
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.diagnosis.evidence.attainable import attainable
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.finding import Evidence, Location
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Floats, Mask, Rows, distinct_rows

Test = Callable[[OperatorCall], bool]


@dataclass(frozen=True, eq=False)
class CalledWork:
    """Rows of ``device_ops``; of ``host_ops``, none within another, where a CPU computes."""

    rows: Rows
    on_device: bool
    count: float  # of the rows, a step
    ns_per_step: int
    place: Location | None
    evidence: tuple[Evidence, ...]

    def scaled(self, ratio: float, *, least: Floats | None = None) -> Change:
        """With this share of FLOPs, bytes and time, of which each keeps at least ``least``."""
        if not self.on_device:
            return ScaleHostSpans(self.rows, ratio)
        factor = ratio if least is None else np.maximum(least, ratio)
        return ScaleDeviceOps(self.rows, factor, flops_left=ratio, bytes_left=ratio)


START_NS = 3_000  # of a kernel that does next to nothing: 1.5 to 2.5 us, and its tail
CALL_NS = 20_000  # of an operator on a CPU that does next to nothing: 2 to 20 us when recorded


def shrunk(trace: Trace, work: CalledWork, ratio: float) -> Change:
    """The same work on this share of its rows; weights are read and calls are made all the same."""
    if not work.on_device:
        least_ratio = min(CALL_NS * work.count / max(work.ns_per_step, 1), 1.0)
        return work.scaled(max(ratio, least_ratio))
    assert trace.device_ops is not None
    took, well = trace.device_ops["duration_ns"][work.rows], attainable(trace)
    least = np.full(len(took), float(START_NS))
    if well is not None:
        weights = launched_calls(trace).numbers(well.weights_ns)[work.rows]
        least = np.fmax(least, weights)
    return work.scaled(ratio, least=np.minimum(least / np.maximum(took, 1), 1.0))


def called_work(trace: Trace, test: Test, what: str) -> CalledWork | None:
    """That of the judged steps; None without any."""
    if trace.device_ops is not None and len(trace.device_ops):
        wanted = launched_calls(trace).where(lambda of: test(of.call))
        found = device_work(trace, wanted, what)
        if found is None:
            return None
        return CalledWork(
            found.rows, True, found.count, found.ns_per_step, found.place, found.evidence
        )
    if not computes_on_cpu(trace):
        return None
    spans = host_spans(trace, _called(trace, test), what)
    if spans is None:
        return None
    return CalledWork(
        spans.rows, False, spans.count, spans.ns_per_step, spans.place, spans.evidence
    )


def _called(trace: Trace, test: Test) -> Mask:
    """Rows of ``host_ops``: operators with shapes that pass; asked once for each distinct call."""
    host = trace.host_ops
    assert host is not None
    wanted: Mask = (host["kind"] == HostKind.OPERATOR) & host.known("shapes")
    rows = np.flatnonzero(wanted)
    columns = [host["name"][rows].astype(np.int64)]
    columns += [host.filled(c, NOT_KNOWN)[rows] for c in ("shapes", "dtypes", "values")]
    distinct, which = distinct_rows(*columns)
    calls = [call_of(trace.names, *one) for one in distinct.tolist()]
    passed = np.array([call is not None and test(call) for call in calls], np.bool_)
    wanted[rows] = passed[which] if len(rows) else False
    return wanted
