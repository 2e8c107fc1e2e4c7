"""What every form of an ncu report is read into: launches with metrics and rule results."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class RuleResult:
    """What one of NVIDIA's own rules said about a launch."""

    rule: str  # SOLBottleneck, CPIStall, …
    section: str
    kind: str  # OPT an opportunity, WRN, INF, ERR
    text: str
    speedup_kind: str | None = None  # global: of the kernel's time; local: of one unit
    speedup_percent: float | None = None


@dataclass
class Launch:
    """One profiled launch, in the order of the file."""

    name: str
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    context: int | None = None
    stream: int | None = None
    device: int = 0
    capability: tuple[int, int] | None = None
    process: str | None = None
    numbers: dict[str, tuple[float, str]] = field(default_factory=dict)  # metric: value, unit
    texts: dict[str, str] = field(default_factory=dict)  # metrics that are words
    rules: list[RuleResult] = field(default_factory=list)


@dataclass(frozen=True)
class Launches:
    """A file's launches, and how much of it could not be read."""

    launches: tuple[Launch, ...]
    cut: int = 0  # rows or blocks that are cut off
    version: str | None = None  # of ncu
