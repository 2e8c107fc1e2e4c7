"""A text file for Prometheus' node exporter (textfile collector): the newest look at everything."""

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from pinchpoint.monitor.metrics import METRICS
from pinchpoint.monitor.sample import Sample


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
    if path.exists() and not path.is_file():  # replacing a device would take it from the machine
        raise OSError(errno.EEXIST, "a folder or a device", str(path))
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def _labels(device: str | None, names: Mapping[str, str]) -> str:
    if device is None:
        return ""
    name = names.get(device, "").replace("\\", "\\\\").replace('"', '\\"')
    return f'{{device="{device}",name="{name}"}}'
