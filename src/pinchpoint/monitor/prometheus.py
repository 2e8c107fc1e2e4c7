"""A text file for Prometheus' node exporter (textfile collector): the newest look at everything."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pinchpoint.monitor.metrics import METRICS
from pinchpoint.monitor.sample import Sample
from pinchpoint.replacing import replacing


def exposition(samples: Sequence[Sample], names: Mapping[str, str]) -> str:
    """The samples as gauges ``pinchpoint_<metric>``; ``names`` are devices by number."""
    lines = []
    for metric, about in METRICS.items():
        known = [(s.device, s.values[metric]) for s in samples if metric in s.values]
        if not known:
            continue
        lines.append(f"# HELP pinchpoint_{metric} {about.label}: {about.meaning}")
        lines.append(f"# TYPE pinchpoint_{metric} gauge")
        for device, value in known:
            lines.append(f"pinchpoint_{metric}{_labels(device, names)} {value:.10g}")
    return "\n".join(lines) + "\n"


def write_textfile(path: Path, text: str) -> None:
    """Replace the file at once, as the collector may read it at any moment. Raises OSError."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


def _labels(device: str | None, names: Mapping[str, str]) -> str:
    if device is None:
        return ""
    name = names.get(device, "").replace("\\", "\\\\").replace('"', '\\"')
    return f'{{device="{device}",name="{name}"}}'
