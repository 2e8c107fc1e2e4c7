"""What telemetry says by itself: spreads of every metric, and what they mean in sentences."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.telemetry import Looks, device_looks, host_looks
from pinchpoint.monitor.metrics import KNOWN_METRICS
from pinchpoint.monitor.sample import Sample
from pinchpoint.monitor.sentences import Stretch, device_sentences, host_sentences
from pinchpoint.trace import Trace

MOST_LOOKS = 5_000  # for sentences; of a longer log, looks at equal distances
_NOT_SPREAD = frozenset({"event_reasons"})  # bits, not a quantity


@dataclass(frozen=True)
class SampledRow:
    """One metric of one device; ``device`` is None for the host."""

    device: int | None
    metric: str
    label: str
    unit: str
    median: float
    least: float
    most: float
    looks: int


def sampled_metrics(trace: Trace) -> tuple[SampledRow, ...]:
    """Every metric that was sampled, devices first, in the order of ``monitor/metrics.py``."""
    rows = [row for number, looks in device_looks(trace).items() for row in _rows(number, looks)]
    host = host_looks(trace)
    return (*rows, *(() if host is None else _rows(None, host)))


def sampled_sentences(trace: Trace) -> tuple[str, ...]:
    """What the samples mean, device by device; empty without telemetry."""
    found: list[str] = []
    devices = device_looks(trace)
    for number, looks in devices.items():
        prefix = f"Device {number}: " if len(devices) > 1 else ""
        found += [prefix + text for text in device_sentences(_stretch(str(number), looks))]
    host = host_looks(trace)
    return (*found, *(() if host is None else host_sentences(_stretch(None, host))))


def _rows(device: int | None, looks: Looks) -> Iterator[SampledRow]:
    known = [name for name in KNOWN_METRICS if name in looks.values]
    others = sorted(set(looks.values) - set(KNOWN_METRICS))
    for name in (*known, *others):
        values = looks.of(name)
        if not len(values) or name in _NOT_SPREAD:
            continue
        about = KNOWN_METRICS.get(name)
        yield SampledRow(
            device,
            name,
            about.label if about else name,
            about.unit if about else "",
            float(np.median(values)),
            float(values.min()),
            float(values.max()),
            len(values),
        )


def _stretch(device: str | None, looks: Looks) -> Stretch:
    count = len(looks)
    chosen = np.unique(np.linspace(0, count - 1, min(count, MOST_LOOKS)).astype(np.intp))
    samples = [
        Sample(
            int(looks.time_ns[row]),
            device,
            {name: float(v[row]) for name, v in looks.values.items() if looks.known[name][row]},
        )
        for row in chosen.tolist()
    ]
    return Stretch(samples, "the time sampled")
