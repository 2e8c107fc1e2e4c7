"""When enough has been measured: the interval of the median is narrow, or the time is up.

Precision, not spread: a criterion on the standard deviation never ends on noisy operations and
says nothing about the median. The interval comes from batch medians, which autocorrelation
between samples does not fool.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinchpoint.bench.statistics.intervals import batch_median_interval

PRECISION = 0.005  # half width of the 95 % interval over the median
LEAST_SAMPLES = 30
MOST_SAMPLES = 5_000
FLOOR = 3  # even a slow operation gets these, whatever the time


@dataclass(frozen=True)
class StoppingRule:
    """Stop at this precision, not before the least samples, and at the latest at the others."""

    precision: float = PRECISION
    least_samples: int = LEAST_SAMPLES
    most_samples: int = MOST_SAMPLES
    most_seconds: float = 2.0

    def reached(self, samples: NDArray[np.float64]) -> bool:
        """Whether the median is known well enough."""
        if len(samples) < self.least_samples:
            return False
        interval = batch_median_interval(samples)
        middle = float(np.median(samples))
        return interval is not None and interval[1] - middle <= self.precision * middle

    def out_of_budget(self, count: int, seconds: float) -> bool:
        """Whether to stop without the precision."""
        return count >= self.most_samples or (seconds >= self.most_seconds and count >= FLOOR)
