"""What a pass does not say: B is better, for certain, and how many times."""

from collections.abc import Sequence

from pinchpoint.bench.ab.result import AbResult, MeasureResult
from pinchpoint.bench.measures import OWN_TIME, OWN_WORK


def gain(result: AbResult) -> MeasureResult | None:
    """The measure by which B improved: gated, else of those that decided. None where nothing is
    sure, or where the time without waiting for a CPU became no shorter: then the neighbours on the
    machine, or work that went to another process, are all of the gain."""
    if result.verdict != "pass":
        return None
    own = next((m for m in result.measures if m.name in (OWN_TIME, OWN_WORK)), None)
    if own is not None and own.estimate_ratio >= 0:
        return None
    gated = next((m for m in result.measures if m.gated and m.improved), None)
    by_own = own is not None and own.improved and own.name in result.decided_by
    return gated or (own if by_own else None)


def improved_times(m: MeasureResult) -> str:
    """``improved 1.22 × (95 %: 1.15 to 1.30 ×)``: how many times as fast, or as many."""
    return f"improved {1 / (1 + m.estimate_ratio):.2f} ×{_between(_times(m.ci95_ratio), ' ×')}"


def worsened_for_sure(m: MeasureResult) -> str:
    """``worse by 17.6 % (95 %: 12.1 to 23.4 %)``; from twice on in times."""
    ratio, interval = m.estimate_ratio, m.ci95_ratio or ()
    if ratio >= 1:
        return f"worse by {1 + ratio:.2f} ×{_between([1 + r for r in interval], ' ×')}"
    return f"worse by {100 * ratio:.1f} %{_between([100 * r for r in interval], ' %', digits=1)}"


def _times(interval: tuple[float, float] | None) -> list[float]:
    return sorted(1 / (1 + ratio) for ratio in interval or () if ratio > -1)


def _between(ends: Sequence[float], unit: str, digits: int = 2) -> str:
    return f" (95 %: {' to '.join(f'{end:.{digits}f}' for end in ends)}{unit})" if ends else ""
