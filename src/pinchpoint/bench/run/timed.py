"""The timed part of a run: steps without the warm-up, and what they sum up to."""

import time
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pinchpoint.bench.metrics import Summary, Throughput, TimedSteps, WarmUpInfo
from pinchpoint.bench.run.step_files import StepSeries
from pinchpoint.bench.run.telemetry import Window
from pinchpoint.bench.statistics.intervals import (
    BATCH_METHOD,
    batch_median_interval,
    quantile_bounds,
    quantile_interval,
)
from pinchpoint.bench.statistics.series import (
    WarmUp,
    effective_count,
    find_warm_up,
    lag1_autocorrelation,
    mad,
    spikes,
)
from pinchpoint.frozen import dataclass


@dataclass(frozen=True)
class TimingRules:
    """Where the warm-up ends, and what a step is worth."""

    warmup_steps: int | None = None  # None: until steady
    work_per_step: float | None = None
    work_unit: str = "samples"
    busy: bool = False  # other programs take the machine's CPUs


@dataclass(frozen=True, eq=False)
class TimedPart:
    """The steps after the warm-up, summed up."""

    step_ms: NDArray[np.float64]
    steps: TimedSteps
    throughput: Throughput
    warmup: WarmUpInfo
    window: Window
    recompiles: int
    unknown: Mapping[str, str]


_NOT_TOLD = {
    "cpu_ms": "not recorded",
    "own_ms": "a device times the steps, or the system does not tell how long a thread waits",
    "instructions": "no counter that this program may use",
}


def timed_part(series: StepSeries, rules: TimingRules) -> TimedPart | None:
    """Leave the warm-up out; None if nothing is left."""
    fixed = rules.warmup_steps
    # Neighbours on the machine make steps unsteady, but for what is left without waiting for a CPU.
    own = series.step_ms if series.own_ms is None else series.own_ms
    found = find_warm_up(own, busy=rules.busy)
    skip = found.count if fixed is None else fixed
    kept = series.step_ms[skip:]
    if len(kept) == 0:
        return None
    summary, reasons = summarize_steps(kept)
    window_s = float(kept.sum()) / 1e3
    steps = TimedSteps(
        count=len(kept),
        unit="ms",
        clock=series.clock,
        source=series.source,
        samples_file="steps.f64",
        step_time_ms=summary,
        ci_method=BATCH_METHOD if summary.median_ci95 else None,
        lag1_autocorr=lag1_autocorrelation(kept),
        effective_n=effective_count(kept) if len(kept) >= 10 else None,
        spikes=spikes(kept),
        cpu_ms=_mean(series.cpu_ms, skip),
        own_ms=_mean(series.own_ms, skip),
        instructions=_mean(series.instructions, skip),
        data_wait_ratio=_data_wait(series, skip, window_s),
    )
    unknown = {f"steps.step_time_ms.{k}": v for k, v in reasons.items()}
    if steps.data_wait_ratio is None:
        unknown["steps.data_wait_ratio"] = "no torch DataLoader was seen"
    unknown |= {
        f"steps.{name}": why for name, why in _NOT_TOLD.items() if getattr(steps, name) is None
    }
    if len(kept) < 10:
        unknown |= dict.fromkeys(("steps.lag1_autocorr", "steps.effective_n"), "needs 10 steps")
    if not summary.median_ci95:
        unknown["steps.ci_method"] = reasons["median_ci95"]
    if fixed is not None:
        unknown["warmup.converged"] = "the warm-up was set by hand"
    elif _untold(found, series, rules):
        unknown["warmup.converged"] = "other programs take the CPUs, and make steps unsteady"
    unknown |= {
        "steps.l2": "a workload keeps its own caches",
        "steps.host_bound_ratio": "needs a profile: pinchpoint run",
    }
    return TimedPart(
        step_ms=kept,
        steps=steps,
        throughput=_throughput(series, rules, skip, window_s),
        warmup=WarmUpInfo(
            policy="steady_state" if fixed is None else "fixed",
            steps=skip,
            duration_s=float(series.step_ms[:skip].sum()) / 1e3,
            converged=None if "warmup.converged" in unknown else found.converged,
        ),
        window=_window(series, skip),
        recompiles=int(series.compiled[skip:].sum()),
        unknown=unknown,
    )


def _untold(found: WarmUp, series: StepSeries, rules: TimingRules) -> bool:
    """Whether unsteady steps may be the work of others: a step waits for threads beside its own,
    whose waiting for a CPU nobody tells. How runs differ is then for the pairs to see."""
    return rules.busy and series.clock == "host" and not found.converged


def _mean(values: "NDArray[np.float64] | NDArray[np.int64] | None", skip: int) -> float | None:
    """Not the median: a step has another CPU time with each kind of neighbour, and of two or three
    kinds the median is one or another by luck. Medians of eight seconds differed by 16 %, means by
    11 % (load 8 to 13 on 2 CPUs)."""
    return None if values is None else float(np.mean(values[skip:]))


def _data_wait(series: StepSeries, skip: int, window_s: float) -> float | None:
    if not series.batches.any():
        return None  # no loader was seen
    return min(float(series.data_wait_ns[skip:].sum()) / 1e9 / window_s, 1.0)  # of two clocks


def _throughput(series: StepSeries, rules: TimingRules, skip: int, window_s: float) -> Throughput:
    """Work over time: as told by the options, the program's marks, the loader, else steps."""
    count = len(series.step_ms) - skip
    if rules.work_per_step is not None:
        work, unit = rules.work_per_step * count, rules.work_unit
    elif series.work is not None:
        work, unit = float(series.work[skip:].sum()), rules.work_unit
    elif series.batch_size and series.batches[skip:].sum() > 0:
        work, unit = float(series.batch_size * series.batches[skip:].sum()), "samples"
    else:
        work, unit = float(count), "steps"
    return Throughput(
        value=work / window_s, unit=f"{unit}/s", work=work, work_unit=unit, window_s=window_s
    )


def _window(series: StepSeries, skip: int) -> Window:
    """The program's clock is CLOCK_MONOTONIC, the same as ours, so it maps to the time of day."""
    to_unix_ns = time.time_ns() - time.perf_counter_ns()
    first = series.end_host_ns[skip] - round(series.step_ms[skip] * 1e6)
    return Window(int(first) + to_unix_ns, int(series.end_host_ns[-1]) + to_unix_ns)


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
    percentiles = {name: float(np.quantile(values, q)) for name, q in PERCENTILES.items()}
    intervals = {name: quantile_interval(values, q) for name, q in PERCENTILES.items()}
    bounds = {name: quantile_bounds(values, q) for name, q in PERCENTILES.items()}
    for name in ("p95", "p99"):
        if intervals[name] is None:
            why = f"n={n} < {_LEAST[name]}: one side is open, see {name}_bounds"
            unknown[f"{name}_ci95"] = why
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
            p90_bounds=bounds["p90"],
            p95_bounds=bounds["p95"],
            p99_bounds=bounds["p99"],
            **percentiles,
        ),
        unknown,
    )


_LEAST = {"p90": 36, "p95": 72, "p99": 368}  # statistics.intervals.least_count of each
