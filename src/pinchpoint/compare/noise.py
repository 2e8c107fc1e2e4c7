"""Whether a change is more than steps differ by themselves."""

from math import sqrt

from pinchpoint.bench.statistics.distributions import t_quantile
from pinchpoint.trace.arrays import Ints

FEWEST_STEPS = 3  # below it a spread is a guess


def noise_ns(a: Ints, b: Ints) -> int | None:
    """Half width of the 95 % interval of a difference of means (Welch); None with few steps.

    It knows only what varies from step to step inside each recording.
    """
    if len(a) < FEWEST_STEPS or len(b) < FEWEST_STEPS:
        return None
    errors = [float(x.var(ddof=1)) / len(x) for x in (a, b)]
    total = sum(errors)
    if total == 0:
        return 0
    df = total**2 / sum(e**2 / (len(x) - 1) for e, x in zip(errors, (a, b), strict=True))
    return round(t_quantile(0.975, df) * sqrt(total))
