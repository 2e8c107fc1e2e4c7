"""What can be measured and compared, and thresholds as people write them: ``5%``, ``10ms``."""

from collections.abc import Callable
from typing import Literal

from pinchpoint.bench.metrics import RunMetrics, Summary
from pinchpoint.errors import UsageError
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex

Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Measure:
    """One comparable number of a run."""

    name: str
    unit: str
    better: Better
    label: str
    get: Callable[[RunMetrics], float | None]
    least_samples: int = 0  # within a run, below which it may be shown and not gated
    summary: Callable[[RunMetrics], tuple[Summary | None, str]] | None = None  # and its field

    def interval(self, run: RunMetrics) -> tuple[float | None, float | None]:
        """The 95 % interval of a percentile within a run; both sides open where there is none."""
        found, field = self.summary(run) if self.summary else (None, "")
        if found is None:
            return None, None
        known = found.median_ci95 if field == "median" else getattr(found, f"{field}_bounds")
        return known or (None, None)

    def too_few(self, run: RunMetrics) -> str | None:
        """Why the measure may not decide anything for this run; None if it may."""
        count = _samples(run)
        if count >= self.least_samples:
            return None
        return f"{count} samples in a run, {self.least_samples} needed to gate it"


# Of fewer values the percentile is the largest of them, whatever the others are. How much it moves
# from run to run is for the pairs to see: they decide, or say how many more would.
P95_LEAST, P99_LEAST = 20, 100


def _samples(run: RunMetrics) -> int:
    if run.latency_ms:
        return max((s.count for s in run.latency_ms.values()), default=0)
    return run.steps.count if run.steps else 0


def _step(name: str, field: str, label: str, least: int = 0) -> Measure:
    def summary(run: RunMetrics) -> tuple[Summary | None, str]:
        return (None if run.steps is None else run.steps.step_time_ms), field

    def get(run: RunMetrics) -> float | None:
        return None if run.steps is None else getattr(run.steps.step_time_ms, field)

    return Measure(name, "ms", "lower", label, get, least, summary)


def _of_steps(field: str) -> Callable[[RunMetrics], float | None]:
    return lambda run: None if run.steps is None else getattr(run.steps, field)


def _work(field: str) -> Callable[[RunMetrics], float | None]:
    return lambda run: None if run.work is None else getattr(run.work, field)


def _latency(kind: str, field: str) -> Callable[[RunMetrics], float | None]:
    def get(run: RunMetrics) -> float | None:
        summary: Summary | None = (run.latency_ms or {}).get(kind)
        return None if summary is None else getattr(summary, field)

    return get


def _latency_summary(kind: str, field: str) -> Callable[[RunMetrics], tuple[Summary | None, str]]:
    return lambda run: ((run.latency_ms or {}).get(kind), field)


def _memory(field: str) -> Callable[[RunMetrics], float | None]:
    def get(run: RunMetrics) -> float | None:
        return None if run.memory is None else getattr(run.memory, field)

    return get


def _energy_per_step(run: RunMetrics) -> float | None:
    if run.gpu is None or run.steps is None or not run.steps.count:
        return None
    joules = [g.energy_j for g in run.gpu if g.energy_j is not None]
    return sum(joules) / run.steps.count if joules else None


STEP_TIME = "step_time_ms"
THROUGHPUT = "throughput_per_s"
DURATION = "duration_s"
CPU_TIME = "cpu_ms_per_step"
WORK = "work_s"
TIMES = (STEP_TIME, THROUGHPUT, WORK, DURATION)  # what a busy machine makes longer
OWN_TIME, INSTRUCTIONS = "own_ms_per_step", "instructions_per_step"
OWN_WORK, CPU_WORK = "own_work_s", "work_cpu_s"
# What neighbours on a busy machine change little, of a step or else of the process. The first of
# each is time without waiting for a CPU, which a change cannot avoid unless it is in other threads.
QUIET_STEP = (OWN_TIME, CPU_TIME, INSTRUCTIONS)
QUIET_WORK = (OWN_WORK, CPU_WORK)

_FIXED = (
    _step(STEP_TIME, "median", "step time, median"),
    Measure(
        THROUGHPUT,
        "1/s",
        "higher",
        "throughput",
        lambda r: None if r.throughput is None else r.throughput.value,
    ),
    _step("step_time_p95_ms", "p95", "step time, 95th percentile", P95_LEAST),
    _step("step_time_p99_ms", "p99", "step time, 99th percentile", P99_LEAST),
    Measure(CPU_TIME, "ms", "lower", "CPU time of a step", _of_steps("cpu_ms")),
    Measure(OWN_TIME, "ms", "lower", "step without waiting for a CPU", _of_steps("own_ms")),
    Measure(INSTRUCTIONS, "", "lower", "instructions of a step", _of_steps("instructions")),
    Measure(WORK, "s", "lower", "process without imports", _work("wall_s")),
    Measure(OWN_WORK, "s", "lower", "process without imports or waiting for a CPU", _work("own_s")),
    Measure(CPU_WORK, "s", "lower", "CPU time of the process without imports", _work("cpu_s")),
    Measure(DURATION, "s", "lower", "wall time of the process", lambda r: r.duration_s),
    Measure(
        "data_wait_ratio",
        "ratio",
        "lower",
        "time waiting for data",
        _of_steps("data_wait_ratio"),
    ),
    Measure(
        "device_peak_bytes",
        "bytes",
        "lower",
        "peak device memory, allocator",
        _memory("torch_peak_allocated_bytes"),
    ),
    Measure(
        "host_peak_rss_bytes", "bytes", "lower", "peak host memory", _memory("host_peak_rss_bytes")
    ),
    Measure("energy_j_per_step", "J", "lower", "energy of a step", _energy_per_step),
    Measure("goodput_req_per_s", "1/s", "higher", "goodput", lambda r: r.goodput_req_per_s),
)
_LATENCIES = tuple(
    Measure(
        f"{kind}_{field}_ms",
        "ms",
        "lower",
        f"{kind.upper()}, {'median' if field == 'median' else field}",
        _latency(kind, field),
        {"median": 0, "p95": P95_LEAST, "p99": P99_LEAST}[field],
        _latency_summary(kind, field),
    )
    for kind in ("ttft", "tpot", "itl", "e2e")
    for field in ("median", "p95", "p99")
)
MEASURES: dict[str, Measure] = {m.name: m for m in (*_FIXED, *_LATENCIES)}


# What says as much of a program that does not give the first.
_INSTEAD = {
    "device_peak_bytes": "host_peak_rss_bytes",
    "energy_j_per_step": CPU_TIME,
    STEP_TIME: WORK,
    THROUGHPUT: WORK,
    "step_time_p95_ms": WORK,
    "step_time_p99_ms": WORK,
    WORK: DURATION,
}
_WHY_NOT = {  # where a run notes why it has no such number; most others are of its steps
    "device_peak_bytes": "memory.torch_peak_allocated_bytes",
    "host_peak_rss_bytes": "memory.host_peak_rss_bytes",
    "energy_j_per_step": "gpu",
    "goodput_req_per_s": "goodput_req_per_s",
    WORK: "work",
    OWN_WORK: "work",
    CPU_WORK: "work",
}


def not_given(measure: Measure, run: RunMetrics) -> tuple[str, str | None]:
    """Why a run does not give a measure, and which one that it gives says as much; None: none."""
    latency = any(measure.name == known.name for known in _LATENCIES)
    why = run.unknown.get(_WHY_NOT.get(measure.name, "latency_ms" if latency else "steps"))
    instead: str | None = _INSTEAD.get(measure.name)
    while instead is not None and not MEASURES[instead].get(run):
        instead = _INSTEAD.get(instead)
    return why or "it is null or zero in metrics.json", instead


def custom_measure(name: str, better: Better) -> Measure:
    """A number that the command prints."""
    return Measure(name, "", better, name, lambda run: run.custom.get(name))


def default_gates(run: RunMetrics) -> tuple[str, ...]:
    """What to gate if nothing was said.

    Median step and throughput where steps are known: a change that only adds spikes moves the
    mean, hardly the median. Otherwise what the command prints, otherwise the time of its process
    without imports, and its wall time where that is not known.
    """
    if run.custom:
        return tuple(run.custom)
    if run.latency_ms:
        return tuple(n for n in ("e2e_median_ms", "ttft_median_ms") if MEASURES[n].get(run))
    if run.steps is not None:
        return (STEP_TIME, THROUGHPUT)
    return (WORK,) if run.work else (DURATION,)


_FORM = regex(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*(%|[A-Za-z/1]*)\s*$")
_SCALES = {
    "ms": {"ms": 1.0, "s": 1e3, "us": 1e-3},
    "s": {"s": 1.0, "ms": 1e-3},
    "bytes": {"bytes": 1.0, "B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    "J": {"J": 1.0, "kJ": 1e3},
}


@dataclass(frozen=True)
class Threshold:
    """The smallest change that must not slip through: relative, or in the measure's unit."""

    ratio: float | None = None
    absolute: float | None = None

    def as_ratio(self, center: float) -> float:
        """The threshold as a share of ``center``."""
        if self.ratio is not None:
            return self.ratio
        return (self.absolute or 0.0) / abs(center) if center else 0.0


def parse_threshold(text: str, measure: Measure) -> Threshold:
    """``5%``, or a number in a unit that fits the measure; UsageError for anything else."""
    match = _FORM.match(text)
    scales = _SCALES.get(measure.unit, {measure.unit: 1.0})
    if match and match[2] == "%" and 0 < float(match[1]) < 100:
        return Threshold(ratio=float(match[1]) / 100)
    if match and match[2] in scales and float(match[1]) > 0:
        return Threshold(absolute=float(match[1]) * scales[match[2]])
    units = ", ".join(f"5{u}" for u in ("%", *(u for u in scales if u)))
    raise UsageError(f"{text!r} is no threshold for {measure.name}", hint=f"for example {units}")


def parse_gate(text: str, measures: dict[str, Measure]) -> tuple[str, Threshold]:
    """``NAME:THRESHOLD``, such as ``throughput_per_s:5%``."""
    name, colon, rest = text.partition(":")
    if name not in measures:
        known = ", ".join(sorted(measures))
        raise UsageError(f"no measure {name!r} in {text!r}", hint=f"one of: {known}")
    if not colon:
        raise UsageError(f"{text!r} has no threshold", hint=f"{name}:5%")
    return name, parse_threshold(rest, measures[name])


def parse_percent(text: str) -> float:
    """``3%`` as 0.03."""
    match = _FORM.match(text)
    if match is None or match[2] != "%" or not 0 < float(match[1]) < 100:
        raise UsageError(f"{text!r} is no percentage", hint="for example 3%")
    return float(match[1]) / 100
