"""``result.json`` of runs of one command (schema ``bench.result/1``): raw runs and environment.

Summaries are computed from the runs when they are asked for, never stored alone.
"""

from collections.abc import Mapping, Sequence
from math import exp
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pinchpoint.bench.folders import SESSION_FILE, session_state
from pinchpoint.bench.measures import MEASURES, Measure
from pinchpoint.bench.metrics import RunMetrics, read_document
from pinchpoint.bench.run.validity import is_busy
from pinchpoint.bench.statistics.intervals import mean_interval
from pinchpoint.bench.statistics.series import Modes, two_modes
from pinchpoint.errors import UnreadableFile
from pinchpoint.frozen import dataclass

SCHEMA = "bench.result/1"
RESULT_FILE = "result.json"


class BenchResult(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one command under one environment."""

    schema: str = SCHEMA
    session_id: str
    bench_id: str
    kind: str  # run, serve
    created_utc: str
    command: tuple[str, ...]
    params: dict[str, Any] = {}
    runs: tuple[RunMetrics, ...]
    environment: dict[str, Any]
    env_key: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class AcrossRuns:
    """One measure over the valid runs: a run is the sample."""

    measure: Measure
    values: tuple[float, ...]
    median: float
    ci95: tuple[float, float] | None  # t interval of the geometric mean; None for one run
    cv: float | None  # sd over mean between runs
    modes: Modes | None


def across_runs(
    runs: Sequence[RunMetrics], measures: Mapping[str, Measure] = MEASURES
) -> dict[str, AcrossRuns]:
    """Every measure that the valid runs give."""
    found = {}
    for name, measure in measures.items():
        values = [v for v in (measure.get(run) for run in runs if run.valid) if v is not None]
        if values:
            found[name] = _across(measure, np.array(values, np.float64))
    return found


def _across(measure: Measure, values: "np.ndarray[Any, np.dtype[np.float64]]") -> AcrossRuns:
    interval = mean_interval(np.log(values)) if (values > 0).all() else None
    spread = (
        float(values.std(ddof=1) / values.mean()) if len(values) > 1 and values.mean() else None
    )
    return AcrossRuns(
        measure,
        tuple(float(v) for v in values),
        float(np.median(values)),
        None if interval is None else (exp(interval[0]), exp(interval[1])),
        spread,
        two_modes(values),
    )


def was_busy(result: BenchResult) -> bool:
    """Whether other programs had the CPUs when the session began."""
    host = result.environment.get("host") or {}
    return is_busy(host.get("load_1min"), host.get("cpus_logical"))


def with_program(environment: Mapping[str, Any], runs: Sequence[RunMetrics]) -> dict[str, Any]:
    """The environment with what the program itself said about its switches at its end.

    The measuring process does not import torch, and may even be another interpreter.
    """
    said = next((run.program for run in runs if run.program), {})
    known = {k: v for k, v in said.items() if k != "seed"}
    reasons: Mapping[str, str] = environment.get("unknown", {})
    return dict(environment) | {
        "switches": dict(environment.get("switches", {})) | known,
        "unknown": {
            p: why for p, why in reasons.items() if p.removeprefix("switches.") not in known
        },
    }


def read_result(path: Path) -> BenchResult:
    """A result file, or the one in a session folder.

    UnreadableFile says so if the session of the folder was cut or is still going on.
    """
    if not path.is_dir():
        return read_document(path, BenchResult, SCHEMA)
    where = path / RESULT_FILE
    if not where.is_file():
        state = session_state(path)
        why = f" ({state['why']})" if state.get("why") else ""
        raise UnreadableFile(
            f"{path}: the measurement is not complete: {state['status']}{why}",
            hint=f"measure again; {path / 'runs'} has the runs that were done",
        )
    state = session_state(path) if (path / SESSION_FILE).is_file() else {}
    if (kind := state.get("kind")) in ("ab", "calibrate", "try"):
        raise UnreadableFile(
            f"{path}: made by {kind}, already a comparison",
            hint="give two folders of pinchpoint bench run",
        )
    return read_document(where, BenchResult, SCHEMA)
