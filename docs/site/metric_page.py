"""The page about what `pinchpoint monitor` and `pinchpoint run` sample."""

from pinchpoint.monitor.sample import DEVICE_METRICS, HOST_METRICS, LOGGED_METRICS, Metric

_HEAD = """\
# Metrics

What `pinchpoint monitor` shows, `pinchpoint run` keeps in `telemetry.csv`, and the logs of
nvidia-smi and DCGM are read as. What a device does not tell is left out, never 0. The metrics of
benchmarks are in [bench.metrics/1](documents/bench-metrics.md).
"""
_TABLE = "\n## {}\n\n| name | label | unit | meaning |\n|---|---|---|---|\n"


def metric_page() -> dict[str, str]:
    """The page, by path."""
    parts = {"Of a device": DEVICE_METRICS, "Of the host": HOST_METRICS}
    parts["Only in logs of other tools"] = LOGGED_METRICS
    text = "".join(_TABLE.format(title) + _rows(metrics) for title, metrics in parts.items())
    return {"reference/metrics.md": _HEAD + text}


def _rows(metrics: dict[str, Metric]) -> str:
    rows = (f"| `{n}` | {m.label} | {m.unit} | {m.meaning} |\n" for n, m in metrics.items())
    return "".join(rows)
