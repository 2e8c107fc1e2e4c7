"""``metrics.json``: figures of a run without the profiler. Null: not known."""

from collections.abc import Mapping
from typing import Any

import msgspec

from pinchpoint.run_folder.documents import Count, MemoryPeaks, Signed
from pinchpoint.run_folder.layout import ENVIRONMENT_FILE, METRICS_SCHEMA, TELEMETRY_FILE, TRACES


class UnprofiledSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steps before and after the recording, with only the hooks on, in milliseconds."""

    clock: str = "host"  # device: timed by events on the device
    count: Count = 0
    median: float | None = None
    mean: float | None = None
    before_median: float | None = None
    after_median: float | None = None


class StepPercentiles(msgspec.Struct, frozen=True, kw_only=True):
    """All steps of the run as the host saw them, in milliseconds."""

    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    least: float | None = None
    most: float | None = None


class StepMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of the first rank."""

    found_by: str | None = None
    count: Count = 0
    steady: bool | None = None
    unprofiled_ms: UnprofiledSteps = UnprofiledSteps()
    run_ms: StepPercentiles = StepPercentiles()
    steps_per_s: float | None = None
    batches_per_step: float | None = None
    recording_cost_ms: float | None = None  # by which recording made the run longer


class DataWait(msgspec.Struct, frozen=True, kw_only=True):
    """What the first rank waited for batches."""

    median_ms: float | None = None
    of_run_ratio: float | None = None


class RankMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the program."""

    rank: Count | None = None
    host: str | None = None
    unprofiled_median_ms: float | None = None
    recordings: tuple[str, ...] = ()


class WorkerMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The loader's worker processes together."""

    processes: Count = 0
    at_once: Count = 0
    batches: Count = 0
    busy_ratio: float | None = None
    torch_threads: Count = 0


class Others(msgspec.Struct, frozen=True, kw_only=True):
    """What other programs did meanwhile."""

    gpu: tuple[dict[str, Any], ...] = ()
    cpu: dict[str, Any] = msgspec.field(default_factory=dict)
    sentences: tuple[str, ...] = ()  # for people, where it makes steps longer


# Of the time of all cores: below, a thread of the program finds a free core nearly always.
BUSY_CORES_RATIO = 0.85
OTHERS_RATIO = 0.25  # of all cores: less hardly shifts a median


def cores_taken(cpu: Mapping[str, Any]) -> bool:
    """Whether other programs took the cores that host work needed; ``cpu`` as in ``Others``."""
    names = ("busy_ratio", "cores_used_by_others", "cores")
    known = [float(cpu[k]) for k in names if isinstance(cpu.get(k), int | float)]
    if len(known) < len(names):
        return False
    busy, others, cores = known
    return busy >= BUSY_CORES_RATIO and others >= OTHERS_RATIO * cores


class Artifacts(msgspec.Struct, frozen=True, kw_only=True):
    """Names of what lies beside."""

    telemetry: str = TELEMETRY_FILE
    environment: str = ENVIRONMENT_FILE
    traces: str = TRACES


class MetricsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document."""

    schema: str = METRICS_SCHEMA
    exit_code: Signed | None = None
    duration_s: float | None = None
    processes: Count = 0
    world_size: Count | None = None
    steps: StepMetrics | None = None
    data_wait: DataWait | None = None
    ranks: tuple[RankMetrics, ...] = ()
    loader_workers: WorkerMetrics | None = None
    memory: MemoryPeaks = MemoryPeaks()
    gpu: tuple[dict[str, Any], ...] = ()  # a device: its name, and the spread of each metric
    host: dict[str, Any] = msgspec.field(default_factory=dict)
    others: Others = Others()
    samples_cost_ms: float | None = None  # of looking at the first rank over the whole run
    profiled: bool = False
    artifacts: Artifacts = Artifacts()
