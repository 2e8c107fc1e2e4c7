"""The top-level ``metrics.json`` of a session: what dashboards read, in one small file.

Schema ``bench.summary/1``: the commit and the image it was measured with, and of each duration p50,
p95 and p99. Of several runs a figure is the median over them, with the t interval of their
geometric mean; of one run it has the interval of its own samples, by order statistics. A side that
is null is open. Of a load test at several rates ``rates`` has these of each, and the knee.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from pinchpoint.bench.measures import MEASURES, Measure
from pinchpoint.bench.metrics import RunMetrics, Summary
from pinchpoint.bench.result import AcrossRuns, BenchResult, across_runs

if TYPE_CHECKING:
    from pinchpoint.bench.serve.sweep import Sweep, SweepPoint

SCHEMA = "bench.summary/1"
SUMMARY_FILE = "metrics.json"
_QUANTILES = {"p50": "median", "p95": "p95", "p99": "p99"}


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A figure and its 95 % interval."""

    value: float
    low: float | None
    high: float | None
    samples: int  # runs; of a single run, steps or requests


class RateSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One rate of a load test at several; a ramp's is the middle of a part."""

    rate_per_s: float  # that was asked for
    offered_per_s: float
    answered_per_s: float | None
    goodput_per_s: float | None
    failed: int
    below_knee: bool | None
    why: str  # it is beyond the knee
    durations_ms: dict[str, dict[str, Value]]  # ttft, tpot, itl, e2e; then p50, p95, p99


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One session."""

    schema: str = SCHEMA
    session_id: str
    bench_id: str
    kind: str
    created_utc: str
    commit: str | None
    dirty: bool | None
    image_digest: str | None
    runs: int
    valid_runs: int
    durations_ms: dict[str, dict[str, Value]]  # step, ttft, tpot, itl, e2e; then p50, p95, p99
    measures: dict[str, Value]
    unknown: dict[str, str]
    rates: tuple[RateSummary, ...] | None = None  # lowest first; null: one rate, or none
    knee_per_s: float | None = None  # highest rate below the knee; null: even the lowest is beyond
    beyond_per_s: float | None = None  # the lowest rate that is beyond it for certain
    saturates: bool | None = None  # a rate beyond the knee was tried; else the knee is higher


def summary(result: BenchResult, measures: Mapping[str, Measure] = MEASURES) -> SessionSummary:
    """Of the valid runs."""
    found, valid = across_runs(result.runs, measures), [r for r in result.runs if r.valid]
    return SessionSummary(
        session_id=result.session_id,
        bench_id=result.bench_id,
        kind=result.kind,
        created_utc=result.created_utc,
        **_measured_with(result.environment),
        runs=len(result.runs),
        valid_runs=len(valid),
        durations_ms=_durations(found, valid),
        measures={name: _across(across) for name, across in found.items()},
    )


def summary_of_rates(
    sweep: "Sweep", environment: Mapping[str, Any], created_utc: str
) -> SessionSummary:
    """Of a load test at several rates: no figure of all of them means anything."""
    answered = [p for p in sweep.points if p.answered_per_s]
    return SessionSummary(
        session_id=sweep.session_id,
        bench_id=sweep.bench_id,
        kind="ramp" if sweep.ramp else "sweep",
        created_utc=created_utc,
        **_measured_with(environment),
        runs=len(sweep.points),
        valid_runs=len(answered),
        durations_ms={},
        measures={},
        rates=tuple(_rate(point) for point in sweep.points),
        knee_per_s=sweep.knee_per_s,
        beyond_per_s=sweep.beyond_per_s,
        saturates=sweep.saturates,
    )


def _rate(point: "SweepPoint") -> RateSummary:
    kinds = {
        "ttft": point.ttft_ms,
        "tpot": point.tpot_ms,
        "itl": point.itl_ms,
        "e2e": point.e2e_ms,
    }
    return RateSummary(
        rate_per_s=point.rate_per_s,
        offered_per_s=point.offered_per_s,
        answered_per_s=point.answered_per_s,
        goodput_per_s=point.goodput_per_s,
        failed=point.failed,
        below_knee=point.below_knee,
        why=point.why,
        durations_ms={kind: _of_one(samples) for kind, samples in kinds.items() if samples},
    )


def _measured_with(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Commit and image, and why one of them is not known."""
    code, host = (environment.get(part) or {} for part in ("code", "host"))
    unknown: dict[str, str] = environment.get("unknown") or {}
    facts = {
        "commit": unknown.get("code.commit"),
        "image_digest": unknown.get("host.image_digest"),
    }
    return {
        "commit": code.get("commit"),
        "dirty": code.get("dirty"),
        "image_digest": host.get("image_digest"),
        "unknown": {name: why for name, why in facts.items() if why},
    }


def _durations(
    found: Mapping[str, AcrossRuns], valid: list[RunMetrics]
) -> dict[str, dict[str, Value]]:
    kinds: dict[str, dict[str, Value]] = {}
    for run in valid:
        own = {"step": run.steps.step_time_ms} if run.steps else (run.latency_ms or {})
        for kind, samples in own.items():
            kinds.setdefault(kind, _of_one(samples) if len(valid) == 1 else _of_runs(kind, found))
    return kinds


def _of_one(samples: Summary) -> dict[str, Value]:
    known: dict[str, Any] = {
        "p50": (samples.median, samples.median_ci95),
        "p95": (samples.p95, samples.p95_bounds),
        "p99": (samples.p99, samples.p99_bounds),
    }
    return {
        name: Value(
            value=value,
            low=(ends or (None, None))[0],
            high=(ends or (None, None))[1],
            samples=samples.count,
        )
        for name, (value, ends) in known.items()
        if value is not None
    }


def _of_runs(kind: str, found: Mapping[str, AcrossRuns]) -> dict[str, Value]:
    names = {
        name: f"{kind}_{field}_ms" if kind != "step" else _STEP_MEASURES[name]
        for name, field in _QUANTILES.items()
    }
    return {name: _across(found[m]) for name, m in names.items() if m in found}


_STEP_MEASURES = {"p50": "step_time_ms", "p95": "step_time_p95_ms", "p99": "step_time_p99_ms"}


def _across(found: AcrossRuns) -> Value:
    low, high = found.ci95 or (None, None)
    return Value(value=found.median, low=low, high=high, samples=len(found.values))
