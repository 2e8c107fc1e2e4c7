"""When enough has been measured: the interval of the median is narrow, or the time is up.

Precision, not spread: a criterion on the standard deviation never ends on noisy operations and
says nothing about the median. Each look is a chance to stop on an interval that is narrow by
luck, so looks are few: each comes after twice as many samples as the one before, and none counts
while neighbouring batches of samples are alike, which means that the machine changes more slowly
than was looked.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinchpoint.bench.statistics.intervals import (
    Interval,
    neighbouring_batches_alike,
    widest_batch_interval,
)

PRECISION = 0.005  # half width of the 95 % interval over the median
LEAST_SAMPLES = 200  # before the first look: 20 a batch
SHORT_SAMPLES = 30  # the least for a verdict on the precision when the time is up
LEAST_SECONDS = 0.5  # before the first look, all modes together
MOST_SAMPLES = 5_000  # of a call of microseconds; more change no digit that is shown
FLOOR = 3  # even a slow operation gets these, whatever the time


def median_interval(samples: NDArray[np.float64], least_ratio: float) -> Interval | None:
    """The interval of the median of a timing; None below 20 samples."""
    return widest_batch_interval(samples, least_ratio=least_ratio)


@dataclass(frozen=True)
class StoppingRule:
    """Stop at this precision, not before the least samples, and at the latest at the others.

    ``most_seconds`` are for each mode, ``least_seconds`` for all of them; ``sustained_seconds`` is
    how long the mode without pauses runs, 0 to leave it out.
    """

    precision: float = PRECISION
    least_samples: int = LEAST_SAMPLES
    most_samples: int = MOST_SAMPLES
    least_seconds: float = LEAST_SECONDS
    most_seconds: float = 2.0
    sustained_seconds: float = 0.0

    def reached(self, samples: NDArray[np.float64]) -> bool:
        """Whether the median is known well enough."""
        if len(samples) < min(self.least_samples, SHORT_SAMPLES):
            return False
        interval = median_interval(samples, 0.0)
        middle = float(np.median(samples))
        narrow = interval is not None and interval[1] - middle <= self.precision * middle
        return narrow and not neighbouring_batches_alike(samples)

    def out_of_budget(self, count: int, seconds: float, modes: int = 1) -> bool:
        """Whether to stop without the precision."""
        late = seconds >= modes * self.most_seconds
        return count >= self.most_samples or (late and count >= FLOOR)
