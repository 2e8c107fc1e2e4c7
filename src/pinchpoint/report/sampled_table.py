"""The table of what was sampled beside the recording."""

from pinchpoint.analysis.sampled import SampledRow, sampled_metrics, sampled_sentences
from pinchpoint.report.columns import Column, result_table
from pinchpoint.report.document import ResultTable
from pinchpoint.trace import Trace


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
