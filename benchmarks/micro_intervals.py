"""Measures how often the interval of a micro-benchmark covers the truth. Seeded; numpy only.

    python benchmarks/micro_intervals.py [--trials 1000] [--seed 1] [--json OUT]

Samples are drawn as the sampler takes them, and the stopping rule decides when to end, because
looking at the interval and stopping is what makes intervals too short. The noise is ASSUMED, on a
log scale: white; neighbours that are alike (AR(1)); and a level that wanders with a time constant
in samples (clocks, heat, neighbours on the machine), around which the truth lies. What changes more
slowly than the 200 samples of the first look is the limit of any single measurement. For
comparison, the rule without care: a look after every ten samples from 30 on, ten batches.
"""

import argparse
import json
from dataclasses import dataclass
from math import exp, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pinchpoint.bench.micro.timing import StoppingRule, median_interval
from pinchpoint.bench.statistics.intervals import batch_median_interval

Values = NDArray[np.float64]
MOST = 6_400


@dataclass(frozen=True)
class Noise:
    """Standard deviations as ratios; ``alike`` is the correlation of neighbours, ``wander_over``
    the time constant of the level in samples."""

    white: float
    alike: float = 0.0
    wander: float = 0.0
    wander_over: float = 1.0


NOISES = {
    "white 0.5 %": Noise(0.005),
    "neighbours alike 0.7": Noise(0.005, alike=0.7),
    "neighbours alike 0.9": Noise(0.005, alike=0.9),
    "spread 3 %, alike 0.5": Noise(0.03, alike=0.5),
    "level wanders 0.1 % over 20 samples": Noise(0.002, wander=0.001, wander_over=20),
    "level wanders 0.1 % over 200 samples (the limit)": Noise(0.002, wander=0.001, wander_over=200),
    "level wanders 0.3 % over 60 samples": Noise(0.002, wander=0.003, wander_over=60),
}
RESOLUTION = 0.001  # of a block: a block is a thousand of the clock's resolutions long


def simulate(noise: Noise, rng: np.random.Generator) -> Values:
    """Times relative to the truth."""
    steps = rng.normal(0, noise.white * sqrt(1 - noise.alike**2), MOST)
    times = _remembering(steps, noise.alike)
    if noise.wander:
        memory = exp(-1 / noise.wander_over)
        level = rng.normal(0, noise.wander * sqrt(1 - memory**2), MOST)
        level[0] = rng.normal(0, noise.wander)
        times += _remembering(level, memory)
    return np.exp(times)


def _remembering(steps: Values, memory: float) -> Values:
    if not memory:
        return steps.copy()
    out = np.empty_like(steps)
    last = 0.0
    for i, step in enumerate(steps.tolist()):
        last = out[i] = memory * last + step
    return out


def stopped(times: Values, rule: StoppingRule) -> Values:
    """The samples that the rule takes: a look at each doubling."""
    count = rule.least_samples
    while count < len(times) and not rule.reached(times[:count]):
        count *= 2
    return times[:count]


def stopped_early(times: Values, precision: float) -> Values:
    """The samples of the rule without care."""
    for count in range(30, 1_000, 10):
        interval = batch_median_interval(times[:count])
        middle = float(np.median(times[:count]))
        if interval and interval[1] - middle <= precision * middle:
            return times[:count]
    return times[:1_000]


def coverage(noise: Noise, precision: float, trials: int, seed: int) -> dict[str, float]:
    """Shares of intervals that cover the truth, and the mean number of samples."""
    rng = np.random.default_rng(seed)
    rule = StoppingRule(precision=precision)
    hits, without_care, counts = 0, 0, []
    for _ in range(trials):
        times = simulate(noise, rng)
        taken = stopped(times, rule)
        hits += _covers(median_interval(taken, RESOLUTION))
        without_care += _covers(batch_median_interval(stopped_early(times, precision)))
        counts.append(len(taken))
    return {
        "covered": hits / trials,
        "samples": float(np.mean(counts)),
        "without care": without_care / trials,
    }


def _covers(interval: tuple[float, float] | None) -> bool:
    return interval is not None and interval[0] <= 1.0 <= interval[1]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result = {}
    for precision in (0.005, 0.002):
        for name, noise in NOISES.items():
            key = f"{name}, precision {precision:.1%}"
            result[key] = coverage(noise, precision, options.trials, options.seed)
            found = result[key]
            print(
                f"{key:66} covered {found['covered']:6.1%} after {found['samples']:5.0f} samples; "
                f"without care {found['without care']:6.1%}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
