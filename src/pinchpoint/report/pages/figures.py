"""Figures of benchmarks as people read them."""

from pinchpoint.report.quantity import number, quantity

ABSURD = 10.0  # ratios beyond this say only that nothing is known


def figure(value: float | None, unit: str) -> str:
    """A value in the unit of its measure; ``-`` where there is none."""
    if value is None:
        return "-"
    if unit in ("bytes", "ratio"):
        return quantity(value, unit)
    return f"{number(value)} {unit}".strip()


def change(ratio: float | None) -> str:
    """A worsening as a signed percentage."""
    if ratio is None:
        return "-"
    return f"{100 * ratio:+.1f} %" if abs(ratio) < ABSURD else f"over {100 * ABSURD:.0f} %"


def change_range(interval: tuple[float, float] | None) -> str:
    """An interval of worsenings."""
    if interval is None:
        return "-"
    return f"{100 * interval[0]:+.1f} to {change(interval[1])}"


def range_of(interval: tuple[float, float] | None, unit: str = "") -> str:
    """An interval of values in the unit of the measure; without one, bare numbers."""
    if interval is None:
        return "-"
    return f"{figure(interval[0], unit)} to {figure(interval[1], unit)}"
