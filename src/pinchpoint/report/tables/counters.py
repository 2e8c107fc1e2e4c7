"""The tables of hardware counters and of what was sampled beside the recording."""

from pinchpoint.analysis.kernel_issues import Examined, examined_launches
from pinchpoint.analysis.kernel_short_names import short_kernel_name
from pinchpoint.analysis.sampled import SampledRow, sampled_metrics, sampled_sentences
from pinchpoint.report.document import ResultTable
from pinchpoint.report.tables.columns import Column, result_table
from pinchpoint.trace import Trace


def profiled_table(trace: Trace) -> ResultTable | None:
    """Profiled launches, longest first; None where nothing was profiled."""
    if trace.kernel_counters is None or not len(trace.kernel_counters):
        return None
    rows = sorted(examined_launches(trace), key=lambda e: -(e.facts.duration_ns or 0.0))
    columns: tuple[Column[Examined], ...] = (
        Column("name", "kernel", "", lambda e: short_kernel_name(e.launch.name)),
        Column("time_ns", "time", "ns", _time_ns),
        Column("bound", "bound by", "", lambda e: e.point.bound),
        Column("roof_ratio", "of its roof", "ratio", lambda e: e.point.roof_ratio),
        Column("issues", "what holds it back", "", lambda e: ", ".join(i.id for i in e.issues)),
        Column("launch", "launch", "count", lambda e: e.launch.number),
        Column("full_name", "full name", "", lambda e: e.launch.name),
    )
    note = "Times are those of the profiler, which fixes clocks and empties caches before a launch."
    return result_table("profiled", "Profiled kernels", columns, rows, note)


def _time_ns(examined: Examined) -> int | None:
    lasted = examined.facts.duration_ns
    return None if lasted is None else round(lasted)


def sampled_table(trace: Trace) -> ResultTable | None:
    """Spreads by device and metric; None without telemetry."""
    rows = sampled_metrics(trace)
    if not rows:
        return None
    columns: tuple[Column[SampledRow], ...] = (
        Column("device", "device", "", lambda r: "host" if r.device is None else str(r.device)),
        Column("metric", "metric", "", lambda r: r.label),
        Column("median", "median", "", lambda r: _rounded(r.median)),
        Column("least", "least", "", lambda r: _rounded(r.least)),
        Column("most", "most", "", lambda r: _rounded(r.most)),
        Column("unit", "unit", "", lambda r: r.unit),
        Column("looks", "samples", "count", lambda r: r.looks),
        Column("id", "name", "", lambda r: r.metric),
    )
    said = " ".join(f"{text[:1].upper()}{text[1:]}." for text in sampled_sentences(trace))
    note = f"The whole time sampled, not only the recorded steps. {said}".strip()
    return result_table("telemetry", "Telemetry", columns, rows, note)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
