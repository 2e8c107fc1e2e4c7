"""Profiled launches with their hardware counters, in base units.

``kernel_counters`` holds one row a launch and metric, with units as written (``us``, ``Gbyte/s``).
Here a launch has all its metrics, in ns, bytes, bytes/s and Hz.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pinchpoint.trace import ExpertNote, ProfiledLaunch, Trace, once_per_trace
from pinchpoint.trace.profiled import Size

# Of decimal units (SI), as ncu writes them.
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_TIMES = {
    "ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9,
    "second": 1e9,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class KernelLaunch:
    """One profiled launch."""

    number: int  # order in the file
    name: str
    device: int
    metrics: Mapping[str, float]  # base units
    grid: Size | None = None
    block: Size | None = None
    texts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    rules: tuple[ExpertNote, ...] = ()  # what NVIDIA's own rules said

    def get(self, *names: str) -> float | None:
        """The first of several metrics that was collected; names differ between versions."""
        return next((self.metrics[n] for n in names if n in self.metrics), None)


_UNTOLD = ProfiledLaunch("")


@once_per_trace
def kernel_launches(trace: Trace) -> tuple[KernelLaunch, ...]:
    """All profiled launches in order; () if the trace has no counters."""
    counters = trace.kernel_counters
    if counters is None or not len(counters):
        return ()
    about = dict(enumerate(trace.profiled_launches))
    said: dict[int, list[ExpertNote]] = {}
    for note in trace.expert_notes:
        said.setdefault(note.launch, []).append(note)
    unit_known = counters.known("unit")
    names = trace.names
    metrics: dict[int, dict[str, float]] = {}
    first: dict[int, int] = {}
    for row, (launch, metric, unit, value) in enumerate(
        zip(
            counters["launch"].tolist(),
            counters["metric"].tolist(),
            counters["unit"].tolist(),
            counters["value"].tolist(),
            strict=True,
        )
    ):
        first.setdefault(launch, row)
        scale = scale_of(names[unit]) if unit_known[row] else 1.0
        metrics.setdefault(launch, {})[names[metric]] = value * scale
    return tuple(
        KernelLaunch(
            launch,
            names[int(counters["name"][row])],
            int(counters["device"][row]) if counters.known("device")[row] else 0,
            MappingProxyType(metrics[launch]),
            about.get(launch, _UNTOLD).grid,
            about.get(launch, _UNTOLD).block,
            about.get(launch, _UNTOLD).texts,
            tuple(said.get(launch, ())),
        )
        for launch, row in sorted(first.items())
    )


def scale_of(unit: str) -> float:
    """What a value in a unit is multiplied by to be in the base unit: 1000 for ``us``.

    Understands the spellings of all versions: ``usecond``, ``Gbyte/s``, ``Ghz``,
    ``cycle/nsecond``, ``Kbyte/block``. An unknown unit is taken for a base unit.
    """
    over, _, under = unit.partition("/")
    if not under and over in _TIMES:
        return _TIMES[over]
    scale = _prefix(over)
    if under in _TIMES:
        scale *= 1e9 / _TIMES[under]  # per second
    elif under:
        scale /= _prefix(under)
    return scale


def _prefix(word: str) -> float:
    lower = word.lower()
    for base in ("byte", "hz", "sector", "inst"):
        if lower.endswith(base) and lower.removesuffix(base) in _PREFIXES:
            return _PREFIXES[lower.removesuffix(base)]
    return 1.0
