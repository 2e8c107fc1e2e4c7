"""Measures the error rates of the decision rule on simulated machines. Seeded; numpy only.

    python benchmarks/decision_rules.py [--trials 4000] [--seed 1] [--json OUT]

The noise is ASSUMED, and was set against figures that users report: a run-to-run sd of 0.3, 0.7
and 2 %, sessions that shift, clocks that drift, machines and processes with two speeds, steps
that remember (AR(1)) and spike. On a log scale a step of run r is

    session + slope r + walk(r) + machine state + process state + run effect + AR(1) + spike

The screen by past sessions is measured too, and so are the traps: a test over the pooled steps of
all runs, and A A A A A B B B B B under a drift, both of which an honest-looking report gets wrong.
"""

import argparse
import json
from dataclasses import dataclass, replace
from math import erfc, log1p, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pinchpoint.bench.ab.decision import (
    EARLY,
    EARLY_CONFIDENCE,
    LOOKS,
    abba,
    decide,
    decide_all,
)
from pinchpoint.bench.baselines import Entry, SessionMedian
from pinchpoint.bench.baselines.screen import screen
from pinchpoint.bench.statistics.distributions import t_quantile
from pinchpoint.bench.statistics.series import two_modes

Values = NDArray[np.float64]
STEPS = 300
BLOCK = 250  # trials at a time, to bound memory


@dataclass(frozen=True)
class Profile:
    """The noise of one kind of machine, in per cent (probabilities as such)."""

    session: float
    run: float
    slope: float
    walk: float
    sticky: tuple[float, float]  # probability and size of a slow machine state
    process: tuple[float, float]  # probability and size of a slow process
    step: float
    phi: float
    spikes: float  # probability of a spike


PROFILES = {
    "quiet": Profile(0.2, 0.3, 0.02, 0.05, (0, 0), (0, 0), 1.0, 0.5, 0.005),
    "typical": Profile(1.0, 0.7, 0.10, 0.20, (0.10, 3.0), (0.10, 3.0), 2.0, 0.7, 0.01),
    "noisy": Profile(2.5, 2.0, 0.20, 0.50, (0.15, 6.0), (0.20, 6.0), 5.0, 0.8, 0.03),
}
STICKINESS = 0.9  # chance that the machine keeps its state from run to run


def simulate(profile: Profile, trials: int, runs: int, rng: np.random.Generator) -> Values:
    """Step times relative to 1 of consecutive runs of the same code: (trials, runs, STEPS)."""
    level = rng.normal(0, profile.session, (trials, 1))
    level = level + profile.slope * np.arange(runs)
    level = level + np.cumsum(rng.normal(0, profile.walk, (trials, runs)), axis=1)
    level += _sticky(profile.sticky, trials, runs, rng)
    level += profile.process[1] * (rng.random((trials, runs)) < profile.process[0])
    level += rng.normal(0, profile.run, (trials, runs))
    steps = rng.normal(0, profile.step * sqrt(1 - profile.phi**2), (trials, runs, STEPS))
    for i in range(1, STEPS):
        steps[:, :, i] += profile.phi * steps[:, :, i - 1]
    times: Values = np.exp((level[:, :, None] + steps) / 100)
    spiky = rng.random(times.shape) < profile.spikes
    times[spiky] *= rng.uniform(1.2, 3.0, int(spiky.sum()))
    return times


def _sticky(state: tuple[float, float], trials: int, runs: int, rng: np.random.Generator) -> Values:
    slow = np.zeros((trials, runs))
    now = rng.random(trials) < state[0]
    for r in range(runs):
        redraw = rng.random(trials) > STICKINESS
        now = np.where(redraw, rng.random(trials) < state[0], now)
        slow[:, r] = now * state[1]
    return slow


SUMMARIES = {
    "median": lambda t: np.median(t, axis=2),
    "mean": lambda t: np.mean(t, axis=2),
    "p95": lambda t: np.percentile(t, 95, axis=2),
}


def pair_ratios(profile: Profile, trials: int, summary: str, seed: int) -> Values:
    """Log ratios B / A of the same code, in ABBA order: (trials, most pairs)."""
    rng = np.random.default_rng(seed)
    order = abba(LOOKS[-1])
    out = []
    for start in range(0, trials, BLOCK):
        times = simulate(profile, min(BLOCK, trials - start), len(order), rng)
        y = np.log(SUMMARIES[summary](times))
        a = y[:, [i for i, (_, arm) in enumerate(order) if arm == "A"]]
        b = y[:, [i for i, (_, arm) in enumerate(order) if arm == "B"]]
        out.append(b - a)
    return np.concatenate(out)


def outcome(d: Values, threshold: float) -> tuple[str, int]:
    """The verdict and the pairs used when the looks are taken in turn; before them a pass."""
    early = decide_all(
        {"": d[:EARLY]},
        {"": threshold},
        looks=(EARLY,),
        alpha=0.0,
        pass_confidence=EARLY_CONFIDENCE,
    )[""]
    if early.verdict == "pass" and early.estimate_ratio > -threshold / 2:
        return "pass", EARLY
    for look in LOOKS:
        decision = decide(d[:look], threshold)
        if decision.verdict != "inconclusive":
            return decision.verdict, look
    return "inconclusive", LOOKS[-1]


def rates(d: Values, threshold: float, effect: float) -> dict[str, float]:
    """Shares of the verdicts and the mean number of pairs under a true slow-down."""
    results = [outcome(row + log1p(effect), threshold) for row in d]
    verdicts = [v for v, _ in results]
    shares = {v: verdicts.count(v) / len(d) for v in ("regressed", "pass", "inconclusive")}
    return shares | {"pairs": float(np.mean([k for _, k in results]))}


def pooled_steps_trap(profile: Profile, trials: int, seed: int) -> float:
    """False alarms at 5 % of a Mann-Whitney test over all steps of five runs an arm."""
    rng = np.random.default_rng(seed)
    alarms = 0
    for _ in range(trials):
        times = simulate(profile, 1, 10, rng)[0]
        alarms += _mann_whitney_p(times[0::2].ravel(), times[1::2].ravel()) < 0.05
    return alarms / trials


def _mann_whitney_p(a: Values, b: Values) -> float:
    """One-sided p that b is larger, normal approximation; no ties in continuous data."""
    ranks = np.empty(len(a) + len(b))
    ranks[np.argsort(np.concatenate([a, b]))] = np.arange(1, len(ranks) + 1)
    u = ranks[len(a) :].sum() - len(b) * (len(b) + 1) / 2
    mean, sd = len(a) * len(b) / 2, sqrt(len(a) * len(b) * (len(a) + len(b) + 1) / 12)
    return 0.5 * erfc((u - mean) / sd / sqrt(2))


def drift_trap(trials: int, seed: int, slope: float) -> dict[str, float]:
    """False alarms under a steady drift of ``slope`` % a run: all A then all B, against ABBA."""
    profile = replace(PROFILES["quiet"], slope=slope)
    times = SUMMARIES["median"](simulate(profile, trials, 10, np.random.default_rng(seed)))
    y = np.log(times)
    blocked = y[:, 5:] - y[:, :5]
    t = blocked.mean(axis=1) / (blocked.std(axis=1, ddof=1) / sqrt(5))
    interleaved = pair_ratios(profile, trials, "median", seed)
    return {
        "blocked, paired t at 5 %": float((t > t_quantile(0.95, 4)).mean()),
        "blocked, this rule": rates(blocked, 0.03, 0.0)["regressed"],
        "ABBA, this rule": rates(interleaved, 0.03, 0.0)["regressed"],
    }


def history_screen(profile: Profile, trials: int, seed: int) -> dict[str, float]:
    """Flagged shares of a session (median of 3 runs) against a window of 20 past sessions."""
    rng = np.random.default_rng(seed)
    medians = []
    for start in range(0, trials * 21, BLOCK):
        times = simulate(profile, min(BLOCK, trials * 21 - start), 3, rng)
        medians.append(np.median(SUMMARIES["median"](times), axis=1))
    sessions = np.concatenate(medians).reshape(trials, 21)
    flagged = {}
    for effect in (0.0, 0.03, 0.05, 0.10):
        verdicts = [_screened(row, effect) for row in sessions]
        flagged[f"{effect:.0%}"] = sum(v in ("suspect", "regressed") for v in verdicts) / trials
    return flagged


def _screened(row: Values, effect: float) -> str:
    past = tuple(
        SessionMedian(session_id=str(i), utc="", value=float(v), runs=3)
        for i, v in enumerate(row[:20])
    )
    entry = Entry(better="lower", unit="ms", session_medians=past)
    return screen(float(row[20]) * (1 + effect), entry).verdict


def bimodality(trials: int, seed: int) -> dict[str, float]:
    """How often ten run medians are called two-speed: one normal mode, and two 11 % apart."""
    rng = np.random.default_rng(seed)
    one = rng.normal(100, 1, (trials, 10))
    two = rng.normal(100, 0.5, (trials, 10)) + 11 * (rng.random((trials, 10)) < 0.4)
    return {
        "one mode": float(np.mean([two_modes(row) is not None for row in one])),
        "two modes": float(np.mean([two_modes(row) is not None for row in two])),
    }


def everything(trials: int, seed: int) -> dict[str, object]:
    """All tables, ready for JSON."""
    effects = (0.0, 0.01, 0.02, 0.03, 0.05, 0.10)
    result: dict[str, object] = {"trials": trials, "seed": seed}
    for name, profile in PROFILES.items():
        d = pair_ratios(profile, trials, "median", seed)
        result[f"{name}, sd of a pair"] = float(np.median(d.std(axis=1, ddof=1)))
        for threshold in (0.03, 0.05):
            for effect in effects:
                key = f"{name}, median, threshold {threshold:.0%}, true {effect:.0%}"
                result[key] = rates(d, threshold, effect)
    few = max(100, trials // 10)
    result["pooled steps trap"] = {
        name: pooled_steps_trap(profile, few, seed) for name, profile in PROFILES.items()
    }
    result["drift 0.5 % a run"] = drift_trap(trials, seed, 0.5)
    result["history screen, 20 sessions of 3 runs"] = {
        f"{name} {effect}": share
        for name, profile in PROFILES.items()
        for effect, share in history_screen(profile, few, seed).items()
    }
    result["two speeds"] = bimodality(trials, seed)
    return result


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result = everything(options.trials, options.seed)
    for key, value in result.items():
        shown = value if not isinstance(value, dict) else _line(value)
        print(f"{key:50s} {shown}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


def _line(values: dict[str, float]) -> str:
    return "  ".join(f"{k} {v:.1f}" if k == "pairs" else f"{k} {v:.1%}" for k, v in values.items())


if __name__ == "__main__":
    main()
