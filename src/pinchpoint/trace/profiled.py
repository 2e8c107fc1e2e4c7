"""What a kernel profiler (ncu) or a summary (nsys stats) says besides numbers in tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Size = tuple[int, int, int]


@dataclass(frozen=True)
class ProfiledLaunch:
    """One launch that was profiled; its position is ``launch`` in ``kernel_counters``."""

    name: str
    grid: Size | None = None
    block: Size | None = None
    context: int | None = None
    stream: int | None = None
    device: int = 0
    texts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # word metrics


@dataclass(frozen=True)
class ExpertNote:
    """What one of NVIDIA's own rules said about a profiled launch."""

    launch: int  # position in ``Trace.profiled_launches``
    rule: str  # SOLBottleneck, CPIStall, …
    section: str
    kind: str  # OPT an opportunity, WRN, INF, ERR
    text: str
    speedup_kind: str | None = None  # global: of the kernel's time; local: of one unit
    speedup_percent: float | None = None


@dataclass(frozen=True)
class SummaryTable:
    """Totals by name as a tool printed them, without times of single events."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
