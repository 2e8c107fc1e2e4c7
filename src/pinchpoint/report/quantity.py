"""Numbers as people read them: three significant digits and a unit that fits."""

from collections.abc import Callable

_TIME_UNITS = (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000), ("ns", 1))
_BYTE_UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))


def number(value: float) -> str:
    """Three significant digits, never in powers of ten: 0.0123, 1.23, 12.3, 1230."""
    if value == 0 or abs(value) >= 99.95:
        return f"{value:.0f}"
    if abs(value) < 0.01:
        return f"{value:.3f}"
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    return f"{value:.{2 if whole == 0 else 3 - whole}f}"


def time_unit(ns: float) -> str:
    """The largest unit in which ``ns`` is at least 1; seconds from 10 s on, so steps stay in ms."""
    for unit, size in _TIME_UNITS:
        if abs(ns) >= size * (10 if unit == "s" else 1):
            return unit
    return "ns"


def in_unit(ns: float, unit: str) -> str:
    """A duration as a bare number of the given unit."""
    return number(ns / dict(_TIME_UNITS)[unit])


def duration(ns: float) -> str:
    """A duration with its unit: ``22.3 ms``."""
    unit = time_unit(ns)
    return f"{in_unit(ns, unit)} {unit}"


def span(low: float, high: float, unit: str) -> str:
    """A range in one unit: ``13.8 to 16.0``."""
    return f"{in_unit(low, unit)} to {in_unit(high, unit)}"


def size(count: float) -> str:
    """A number of bytes: ``3.20 GiB``."""
    unit, scale = next((u for u in _BYTE_UNITS if abs(count) >= u[1]), _BYTE_UNITS[-1])
    return f"{number(count / scale)} {unit}"


def percent(ratio: float) -> str:
    """A ratio as a percentage with one decimal: ``47.7``."""
    return f"{100 * ratio:.1f}"


def quantity(value: float | int | str | None, unit: str) -> str:
    """A value as its declared unit asks; ``not known`` for None.

    A unit may have a rest: ``ns per step`` is a duration and two words.
    """
    if value is None:
        return "not known"
    if isinstance(value, str):
        return value
    first, _, rest = unit.partition(" ")
    if first in _SCALED:
        return f"{_SCALED[first](value)} {rest}".rstrip()
    text = f"{value:,}" if isinstance(value, int) else number(value)
    return text if unit in ("", "count") else f"{text} {unit}"


_SCALED: dict[str, Callable[[float], str]] = {
    "ns": duration,
    "bytes": size,
    "ratio": lambda ratio: f"{percent(ratio)} %",
}
