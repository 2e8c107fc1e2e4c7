"""Good and poor marks of a launch's metrics, as kernel-tuning courses teach them.

They are starting points for reading, not verdicts: a bf16 product with 15 % occupancy is a good
kernel. Each mark has the value, what counts as good and as poor, and which way is better.
"""

from typing import Literal

from pinchpoint.analysis.limits.counter_facts import KernelFacts
from pinchpoint.analysis.limits.counter_issues import MEMORY_STALLS, SYNC_STALLS, Examined
from pinchpoint.frozen import dataclass


@dataclass(frozen=True)
class MetricMark:
    """One metric of one launch."""

    metric: str
    value: float | None
    unit: str
    mark: Literal["good", "fair", "poor"] | None  # None: not collected, or no matter here
    good: str = ""  # the threshold in words
    poor: str = ""


def marks(examined: Examined) -> tuple[MetricMark, ...]:
    """The metrics that people look at first, with marks."""
    facts, bound = examined.facts, examined.point.bound
    memory = facts.memory_percent if bound == "memory" else None
    return (
        _high(
            "SM throughput",
            facts.compute_percent if bound != "memory" else None,
            80,
            50,
            facts.compute_percent,
        ),
        _high("memory throughput", memory, 60, 20, facts.memory_percent),
        _high("achieved occupancy", facts.occupancy_percent, 50, 25),
        _high("L2 hit rate", facts.l2_hit_percent, 50, 20),
        _low("memory stalls", _percent(facts, MEMORY_STALLS), 30, 50),
        _low("synchronisation stalls", _percent(facts, SYNC_STALLS), 10, 20),
        _high("instructions a cycle", facts.ipc, 1.0, 0.5, unit="inst/cycle"),
        MetricMark("tensor pipe", facts.tensor_percent, "%", None),
        MetricMark("not selected (enough warps)", _percent(facts, ("not_selected",)), "%", None),
        MetricMark("registers", facts.registers, "a thread", None),
    )


def _percent(facts: KernelFacts, reasons: tuple[str, ...]) -> float | None:
    ratio = facts.stall_ratio(*reasons)
    return None if ratio is None else ratio * 100


def _high(
    metric: str,
    judged: float | None,
    good: float,
    poor: float,
    value: float | None = None,
    unit: str = "%",
) -> MetricMark:
    """More is better. ``judged`` None: the value is shown without a mark."""
    shown = judged if value is None else value
    words = (f"> {good:g} {unit}", f"< {poor:g} {unit}")
    if judged is None:
        return MetricMark(metric, shown, unit, None, *words)
    mark: Literal["good", "fair", "poor"] = (
        "good" if judged > good else "poor" if judged < poor else "fair"
    )
    return MetricMark(metric, shown, unit, mark, *words)


def _low(metric: str, value: float | None, good: float, poor: float) -> MetricMark:
    words = (f"< {good:g} %", f"> {poor:g} %")
    if value is None:
        return MetricMark(metric, None, "%", None, *words)
    mark: Literal["good", "fair", "poor"] = (
        "good" if value < good else "poor" if value > poor else "fair"
    )
    return MetricMark(metric, value, "%", mark, *words)
