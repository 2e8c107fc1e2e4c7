"""The top-level ``metrics.json`` of a session: what dashboards read, in one small file.

Schema ``bench.summary/1``: the commit and the image it was measured with, and of each duration p50,
p95 and p99. Of several runs a figure is the median over them, with the t interval of their
geometric mean; of one run it has the interval of its own samples, by order statistics. A side that
is null is open.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from pinchpoint.bench.measures import MEASURES, Measure
from pinchpoint.bench.metrics import RunMetrics, Summary
from pinchpoint.bench.result import AcrossRuns, BenchResult, across_runs

SCHEMA = "bench.summary/1"
SUMMARY_FILE = "metrics.json"
_QUANTILES = {"p50": "median", "p95": "p95", "p99": "p99"}


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A figure and its 95 % interval."""

    value: float
    low: float | None
    high: float | None
    samples: int  # runs; of a single run, steps or requests


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


def summary(result: BenchResult, measures: Mapping[str, Measure] = MEASURES) -> SessionSummary:
    """Of the valid runs."""
    found, valid = across_runs(result.runs, measures), [r for r in result.runs if r.valid]
    code, host = (result.environment.get(part) or {} for part in ("code", "host"))
    unknown: dict[str, str] = result.environment.get("unknown") or {}
    facts = {
        "commit": unknown.get("code.commit"),
        "image_digest": unknown.get("host.image_digest"),
    }
    return SessionSummary(
        session_id=result.session_id,
        bench_id=result.bench_id,
        kind=result.kind,
        created_utc=result.created_utc,
        commit=code.get("commit"),
        dirty=code.get("dirty"),
        image_digest=host.get("image_digest"),
        runs=len(result.runs),
        valid_runs=len(valid),
        durations_ms=_durations(found, valid),
        measures={name: _across(across) for name, across in found.items()},
        unknown={name: why for name, why in facts.items() if why},
    )


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
