"""What every form of an ncu report is read into: launches with metrics and rule results."""

from collections.abc import Iterable
from dataclasses import field

from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex


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
    process_id: str | None = None  # reports of binary form are not read for it
    numbers: dict[str, tuple[float, str]] = field(default_factory=dict)  # metric: value, unit
    texts: dict[str, str] = field(default_factory=dict)  # metrics that are words
    rules: list[RuleResult] = field(default_factory=list)


@dataclass(frozen=True)
class Launches:
    """A file's launches, and how much of it could not be read."""

    launches: tuple[Launch, ...]
    cut: int = 0  # rows or blocks that are cut off
    version: str | None = None  # of ncu


# ------------------------------------------------------------------------------------------------
# Numbers as ncu prints them: thousands separators, and the decimal sign of the user's locale.


_NOTHING = {"", "nan", "-nan", "no data", "n/a", "(!) n/a", "(!) nan", "inf", "-inf"}
_NO_MEASUREMENT = 1e30  # a launch of a day that moved 1e18 bytes/s stays far below, in any unit
_GROUPS = "\u00a0\u202f '’"  # how locales group digits besides comma and point
_PLAIN = regex(r"^-?[\d.,\u00a0\u202f '’]*\d(?:[eE][+-]?\d+)?$")
_TRIPLE = regex(r"^\(? *(\d+)[,x ] *(\d+)[,x ] *(\d+) *\)?$")

# Marks of a decimal sign: something that a group separator never does.
_POINT = regex(r"\d,\d{3}\.\d|^-?\d+\.(\d{1,2}|\d{4,})$|^-?0\.\d+$|^-?\d{4,}\.\d+$")
_COMMA = regex(r"\d\.\d{3},\d|^-?\d+,(\d{1,2}|\d{4,})$|^-?0,\d+$|^-?\d{4,},\d+$")


def decimal_sign(values: Iterable[str]) -> str:
    """``.`` or ``,``: the decimal sign that most of a file's values speak for.

    ``117.344`` alone may be a hundred and seventeen thousand; ``0.48`` and ``1,234.5`` may not.
    """
    points = commas = 0
    for value in values:
        if _POINT.search(value):
            points += 1
        elif _COMMA.search(value):
            commas += 1
    return "," if commas > points else "."


def number(text: str, decimal: str) -> float | None:
    """The number in a cell, or None for words and for nothing."""
    bare = text.strip()
    if bare.lower() in _NOTHING or not _PLAIN.match(bare):
        return None
    group = "," if decimal == "." else "."
    for sign in (group, *_GROUPS):
        bare = bare.replace(sign, "")
    try:
        value = float(bare.replace(decimal, "."))
    except ValueError:
        return None
    return value if abs(value) < _NO_MEASUREMENT else None


def is_nothing(text: str) -> bool:
    """Whether a cell says that there is no value."""
    return text.strip().lower() in _NOTHING


def triple(text: str) -> tuple[int, int, int] | None:
    """A grid or block size: ``(2, 66, 1)``."""
    match = _TRIPLE.match(text.strip())
    if match is None or any(len(part) > 10 for part in match.groups()):
        return None
    x, y, z = (int(part) for part in match.groups())
    return x, y, z


def unit_of(metric: str) -> str:
    """The base unit of a metric, by its name; reports hold values without units."""
    if metric.endswith(("_pct", ".pct")) or ".pct_of_" in metric:
        return "%"
    if metric.endswith(".per_second"):
        return _per_second(metric)
    if metric.endswith(".peak_sustained") or ".per_cycle" in metric or metric.endswith(".ratio"):
        return ""
    if "time_duration" in metric:
        return "ns"
    base = metric.split("__", 1)[-1]
    if base.startswith("bytes") or "_bytes" in base:
        return "byte"
    return (
        "cycle" if "cycles_" in base and metric.endswith((".sum", ".avg", ".max", ".min")) else ""
    )


def _per_second(metric: str) -> str:
    if "cycles_" in metric:
        return "hz"
    return "byte/s" if "bytes" in metric else "1/s"
