"""Durations as people read them: three significant digits, in the unit that fits."""

_TIME_UNITS = (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000), ("ns", 1))


def number(value: float) -> str:
    """Three significant digits, never in powers of ten: 0.0123, 1.23, 12.3, 1230."""
    if value == 0 or abs(value) >= 99.95:
        return f"{value:.0f}"
    if abs(value) < 0.01:
        return f"{value:.3f}"
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    return f"{value:.{2 if whole == 0 else 3 - whole}f}"


def counted(count: float, what: str) -> str:
    """How many of something, to three digits: ``1 kernel``, ``2.03 kernels``."""
    return f"{count:.3g} {what}{'' if count == 1 else 's'}"


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
