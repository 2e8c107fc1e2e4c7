"""Numbers as people read them: three significant digits and a unit that fits."""

from collections.abc import Callable

from pinchpoint.trace.durations import duration as duration
from pinchpoint.trace.durations import in_unit as in_unit
from pinchpoint.trace.durations import number as number
from pinchpoint.trace.durations import time_unit as time_unit

_BYTE_UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))
# FLOPs, FLOP/s and bytes/s go by powers of a thousand.
_RATE_UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


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


MANY_TIMES = 2.0  # from here on a factor is easier to grasp than a percentage


def slower_or_faster(before: float, after: float) -> str:
    """How a time changed: ``3.1 % slower``; from twice on ``14.2 × as long``, ``3.00 × as fast``.

    ``before`` is not zero.
    """
    if after >= MANY_TIMES * before:
        return f"{number(after / before)} × as long"
    if 0 < MANY_TIMES * after <= before:
        return f"{number(before / after)} × as fast"
    return f"{percent(abs(after / before - 1))} % {'slower' if after > before else 'faster'}"


def relative(before: float, after: float) -> str:
    """How an amount changed: ``+3.1 %``; from twice on ``14.2 ×``, ``3.00 × less``.

    ``before`` is not zero.
    """
    if after >= MANY_TIMES * before:
        return f"{number(after / before)} ×"
    if 0 < MANY_TIMES * after <= before:
        return f"{number(before / after)} × less"
    return f"{100 * (after / before - 1):+.1f} %"


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
    "flop": lambda flops: rate(flops, "FLOP"),
}


def rate(value: float | None, unit: str) -> str:
    """``787 TFLOP/s``, ``2.95 TB/s``; a dash for None."""
    if value is None:
        return "-"
    scale, prefix = next((s for s in _RATE_UNITS if abs(value) >= s[0]), _RATE_UNITS[-1])
    return f"{number(value / scale)} {prefix}{unit}"
