"""From samples to the summaries that ``metrics.json`` carries."""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.bench.metrics import Summary
from pinchpoint.bench.statistics.intervals import (
    batch_median_interval,
    quantile_interval,
)
from pinchpoint.bench.statistics.series import mad

Values = NDArray[np.float64]
PERCENTILES = {"p90": 0.90, "p95": 0.95, "p99": 0.99}


def summarize_steps(step_ms: Values) -> tuple[Summary, dict[str, str]]:
    """Steps of one run: the median's interval from batch medians; reasons for what is null."""
    return _summarize(step_ms, batch_median_interval(step_ms), "batch medians need 20 steps")


def summarize_requests(values_ms: Values) -> tuple[Summary, dict[str, str]]:
    """Independent durations (requests): every interval from order statistics."""
    interval = quantile_interval(values_ms, 0.5)
    return _summarize(values_ms, interval, "an interval of the median needs 6 values")


def _summarize(
    values: Values, median_ci: tuple[float, float] | None, why_no_median_ci: str
) -> tuple[Summary, dict[str, str]]:
    n = len(values)
    if n == 0:
        return Summary(count=0), {"": "no values"}
    unknown = {} if median_ci else {"median_ci95": why_no_median_ci}
    percentiles: dict[str, float | None] = {}
    intervals = {}
    for name, q in PERCENTILES.items():
        intervals[name] = quantile_interval(values, q)
        percentiles[name] = float(np.quantile(values, q)) if intervals[name] else None
        if intervals[name] is None:
            unknown[name] = f"n={n} < {_LEAST[name]}: no 95 % interval exists"
    for name in ("p95", "p99"):
        if intervals[name] is None:
            unknown[f"{name}_ci95"] = unknown[name]
    return (
        Summary(
            count=n,
            median=float(np.median(values)),
            mean=float(values.mean()),
            min=float(values.min()),
            max=float(values.max()),
            mad=mad(values),
            median_ci95=median_ci,
            p95_ci95=intervals["p95"],
            p99_ci95=intervals["p99"],
            **percentiles,
        ),
        unknown,
    )


_LEAST = {"p90": 36, "p95": 72, "p99": 368}  # statistics.intervals.least_count of each
