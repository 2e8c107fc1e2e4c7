"""Before, predicted and measured as bars: the picture of whether a fix worked."""

from pinchpoint.compare.fix import FixOutcome
from pinchpoint.report.blocks import Ladder, Rung
from pinchpoint.report.quantity import in_unit, span, time_unit


def fix_ladder(outcome: FixOutcome) -> Ladder:
    """Three bars; two where nothing was predicted."""
    unit, before = time_unit(outcome.before_ns), outcome.before_ns
    whole = max(before, outcome.measured_ns, *(outcome.measured_range_ns or (0,)))
    rungs = [_rung("before", before, None, whole, unit, "today")]
    if outcome.predicted_ns is not None:
        between = outcome.predicted_range_ns
        rungs.append(_rung("predicted", outcome.predicted_ns, between, whole, unit, "finding"))
    measured = outcome.measured_ns, outcome.measured_range_ns
    good = "together" if outcome.said.startswith("worked") else "piece"
    rungs.append(_rung("measured", *measured, whole, unit, good))
    return Ladder(f"The step, {outcome.clock}", unit, tuple(rungs), answers="did it work, how sure")


def _rung(
    label: str,
    ns: float,
    between: tuple[float, float] | None,
    whole_ns: float,
    unit: str,
    role: str,
) -> Rung:
    low, high = between or (ns, ns)
    return Rung(
        label=label,
        figure=in_unit(ns, unit),
        ratio=ns / whole_ns,
        low=low / whole_ns,
        high=min(high / whole_ns, 1.0),
        between=span(low, high, unit) if between else "",
        role=role,  # type: ignore[arg-type]
    )
