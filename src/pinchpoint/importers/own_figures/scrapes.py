"""Counters as a server shows them to Prometheus: sums since it began, gauges of one moment."""

from collections.abc import Iterator
from pathlib import Path

from pinchpoint.importers.files.units import unit_of_key
from pinchpoint.importers.program_logs._figures import parsed, shown
from pinchpoint.importers.telemetry._samples import lines
from pinchpoint.regex import regex
from pinchpoint.trace import SummaryTable

SIGN = regex(rb"^# TYPE \S+ (?:counter|gauge|histogram|summary|untyped)\s*$", 8)
_TYPE = regex(r"# TYPE (\S+) (\w+)")
_SAMPLE = regex(
    r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>[-+\w.]+)(?: \d+)?\s*$"
)
_LE = regex(r'\ble="([^"]+)"')
_MOST = 5000  # names of one scrape; servers have some hundred
_PERCENTILES = (50, 95, 99)  # those of load tests


def _plain(name: str) -> str:
    for end in ("_bucket", "_sum", "_count", "_total"):
        name = name.removesuffix(end)
    return name


class _Family:
    def __init__(self) -> None:
        self.buckets: dict[float, float] = {}
        self.sum, self.count = 0.0, 0.0
        self.values: list[float] = []


def scrape_tables(path: Path) -> tuple[SummaryTable, ...]:
    """What was counted; empty where no sample is a number."""
    kinds: dict[str, str] = {}
    found: dict[str, _Family] = {}
    for line in lines(path):
        if line.startswith("#"):
            if said := _TYPE.match(line):
                kinds[_plain(said[1])] = said[2]
            continue
        sample = _SAMPLE.match(line)
        value = parsed(sample["value"]) if sample else None
        if sample is None or value is None or len(found) >= _MOST:
            continue
        _add(found.setdefault(_plain(sample["name"]), _Family()), sample["name"], value, line)
    histograms = tuple(_histograms(found, kinds))
    singles = tuple(_singles(found, kinds))
    tables: tuple[SummaryTable, ...] = ()
    if histograms:
        columns = ("histogram", "unit", "count", "mean", *(f"p{p} at most" for p in _PERCENTILES))
        tables += (
            SummaryTable(columns, histograms, "since the server began, all labels together"),
        )
    if singles:
        columns = ("name", "kind", "unit", "labels", "sum", "max")
        tables += (SummaryTable(columns, singles, "counters since it began, gauges of one moment"),)
    return tables


def _add(family: _Family, name: str, value: float, line: str) -> None:
    if name.endswith("_bucket") and (bound := _LE.search(line)):
        edge = float("inf") if "inf" in bound[1].lower() else parsed(bound[1])
        if edge is not None:
            family.buckets[edge] = family.buckets.get(edge, 0.0) + value
    elif name.endswith("_sum"):
        family.sum += value
    elif name.endswith("_count"):
        family.count += value
    else:
        family.values.append(value)


def _histograms(found: dict[str, _Family], kinds: dict[str, str]) -> Iterator[tuple[str, ...]]:
    for name, family in found.items():
        if kinds.get(name) in ("histogram", "summary") and family.count > 0:
            bounds = (_at_most(family, p) for p in _PERCENTILES)
            unit = unit_of_key(name).name or "not said"
            mean = shown(family.sum / family.count)
            yield (name, unit, f"{family.count:,.0f}", mean, *bounds)


def _at_most(family: _Family, percent: int) -> str:
    wanted = family.count * percent / 100
    edge = next((e for e in sorted(family.buckets) if family.buckets[e] >= wanted), None)
    return "" if edge is None else "above all" if edge == float("inf") else shown(edge)


def _singles(found: dict[str, _Family], kinds: dict[str, str]) -> Iterator[tuple[str, ...]]:
    for name, family in found.items():
        if family.values and any(family.values) and not name.endswith("_created"):
            unit = unit_of_key(name).name or "not said"
            values = family.values
            kind = kinds.get(name, "")
            together = shown(sum(values)) if kind == "counter" or len(values) == 1 else ""
            yield (name, kind, unit, f"{len(values):,}", together, shown(max(values)))


__all__ = ["SIGN", "scrape_tables"]
