"""What a pass does not say: B is better, for certain, and how many times."""

from collections.abc import Sequence

from pinchpoint.bench.ab.result import AbResult, MeasureResult
from pinchpoint.bench.measures import OWN_TIME, OWN_WORK


def gain(result: AbResult) -> MeasureResult | None:
    """The measure by which B improved, by half of the threshold at least, as regressions are
    reported from there on. None where nothing is sure.

    Where others took the CPUs it is the time without waiting for a CPU: a shorter step waits less
    often, and its wall time says more than the program gained. If that time became no shorter,
    neighbours on the machine, or other processes that have the work now, are all of the gain.
    """
    if result.verdict != "pass":
        return None
    own = next((m for m in result.measures if is_own(m)), None)
    if own is not None and own.estimate_ratio >= 0:
        return None
    gated = [m for m in result.measures if m.gated]
    least = min((m.threshold_ratio or 0.0 for m in gated), default=0.0) / 2
    busy = any(run.threads_sleep or run.at_once for run in result.runs)
    order = [own, *gated] if busy else [*gated, own]
    return next((m for m in order if m and m.improved and m.estimate_ratio <= -least), None)


def is_own(m: MeasureResult) -> bool:
    """Whether it is the time without waiting for a CPU."""
    return m.name in (OWN_TIME, OWN_WORK)


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
