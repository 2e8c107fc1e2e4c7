"""Thresholds as people write them: ``5%``, ``10ms``, ``200MiB``."""

import re
from dataclasses import dataclass

from pinchpoint.bench.measures import Measure
from pinchpoint.errors import UsageError

_FORM = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*(%|[A-Za-z/1]*)\s*$")
_SCALES = {
    "ms": {"ms": 1.0, "s": 1e3, "us": 1e-3},
    "s": {"s": 1.0, "ms": 1e-3},
    "bytes": {"bytes": 1.0, "B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    "J": {"J": 1.0, "kJ": 1e3},
}


@dataclass(frozen=True)
class Threshold:
    """The smallest change that must not slip through: relative, or in the measure's unit."""

    ratio: float | None = None
    absolute: float | None = None

    def as_ratio(self, center: float) -> float:
        """The threshold as a share of ``center``."""
        if self.ratio is not None:
            return self.ratio
        return (self.absolute or 0.0) / abs(center) if center else 0.0


def parse_threshold(text: str, measure: Measure) -> Threshold:
    """``5%``, or a number in a unit that fits the measure; UsageError for anything else."""
    match = _FORM.match(text)
    scales = _SCALES.get(measure.unit, {measure.unit: 1.0})
    if match and match[2] == "%" and 0 < float(match[1]) < 100:
        return Threshold(ratio=float(match[1]) / 100)
    if match and match[2] in scales and float(match[1]) > 0:
        return Threshold(absolute=float(match[1]) * scales[match[2]])
    units = ", ".join(f"5{u}" for u in ("%", *(u for u in scales if u)))
    raise UsageError(f"{text!r} is no threshold for {measure.name}", hint=f"for example {units}")


def parse_gate(text: str, measures: dict[str, Measure]) -> tuple[str, Threshold]:
    """``NAME:THRESHOLD``, such as ``throughput_per_s:5%``."""
    name, colon, rest = text.partition(":")
    if name not in measures:
        known = ", ".join(sorted(measures))
        raise UsageError(f"no measure {name!r} in {text!r}", hint=f"one of: {known}")
    if not colon:
        raise UsageError(f"{text!r} has no threshold", hint=f"{name}:5%")
    return name, parse_threshold(rest, measures[name])


def parse_percent(text: str) -> float:
    """``3%`` as 0.03."""
    match = _FORM.match(text)
    if match is None or match[2] != "%" or not 0 < float(match[1]) < 100:
        raise UsageError(f"{text!r} is no percentage", hint="for example 3%")
    return float(match[1]) / 100
