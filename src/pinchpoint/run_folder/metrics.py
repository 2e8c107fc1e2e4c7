"""``metrics.json``: figures of a run without the profiler. Null: not known."""

from collections.abc import Mapping
from typing import Any

import msgspec

from pinchpoint.run_folder.documents import MemoryPeaks, ThreadedNote
from pinchpoint.run_folder.layout import (
    ENVIRONMENT_FILE,
    LOOKS_ONCE_NS,
    METRICS_SCHEMA,
    MOST_LOOKS_RATIO,
    SAVING_RATIO,
    TELEMETRY_FILE,
    TRACES,
)
from pinchpoint.run_folder.numbers import Count, Signed


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


class LaunchMicroseconds(msgspec.Struct, frozen=True, kw_only=True):
    """Host time of one small launch of the first rank, before the profiler first ran and after a
    recording; ``unprofiled_ms`` has what it costs more since."""

    before: float | None = None
    after: float | None = None
    why: str | None = None  # one of them is not known

    @property
    def more(self) -> float | None:
        """What each costs more since; None: not known."""
        if self.before is None or self.after is None:
            return None
        return max(self.after - self.before, 0.0)


class StepMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of the first rank."""

    found_by: str | None = None
    place: tuple[str, Count, str] | None = None  # file, line, function of what comes round (loop)
    count: Count = 0
    steady: bool | None = None
    unprofiled_ms: UnprofiledSteps = UnprofiledSteps()
    run_ms: StepPercentiles = StepPercentiles()
    steps_per_s: float | None = None
    batches_per_step: float | None = None
    recording_cost_ms: float | None = None  # by which recording made the run longer
    launch_us: LaunchMicroseconds = LaunchMicroseconds()


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
    threaded: ThreadedNote | None = None  # of the first rank: requests, jobs of a pool
    data_wait: DataWait | None = None
    ranks: tuple[RankMetrics, ...] = ()
    loader_workers: WorkerMetrics | None = None
    memory: MemoryPeaks = MemoryPeaks()
    gpu: tuple[dict[str, Any], ...] = ()  # a device: its name, and the spread of each metric
    host: dict[str, Any] = msgspec.field(default_factory=dict)
    others: Others = Others()
    samples_cost_ms: float | None = None  # of looking at the first rank over the whole run
    samples_once_ms: float | None = None  # of it, for notes that are written seldom
    profiled: bool = False
    artifacts: Artifacts = Artifacts()


# ------------------------------------------------------------------------------------------------
# What the same recording costs of a run of the length that its promise is about.

TEN_MINUTES_S = 600.0  # recording takes less than 2 % of a run that lasts so long


def cost_ratio(metrics: MetricsDocument) -> float | None:
    """Windows and samples, as a share of this run; None where nothing was recorded."""
    windows_ms = metrics.steps.recording_cost_ms if metrics.steps else None
    if windows_ms is None or not metrics.duration_s:
        return None
    return (windows_ms + (metrics.samples_cost_ms or 0.0)) / 1e3 / metrics.duration_s


def cost_of_ten_minutes(metrics: MetricsDocument) -> float | None:
    """The same of ten minutes, or of this run where it is longer.

    Looks go on as they were, up to what they may take; windows come once; notes come again as
    often as they may.
    """
    windows_ms = metrics.steps.recording_cost_ms if metrics.steps else None
    if windows_ms is None or not metrics.duration_s:
        return None
    if metrics.duration_s >= TEN_MINUTES_S:
        return cost_ratio(metrics)
    once_ms = metrics.samples_once_ms or 0.0
    # Of a short run: both were taken at different times.
    looks_ms = max((metrics.samples_cost_ms or 0.0) - once_ms, 0.0)
    notes_ratio = max(once_ms / 1e3 / TEN_MINUTES_S, SAVING_RATIO if once_ms else 0.0)
    most_ratio = LOOKS_ONCE_NS / 1e9 / TEN_MINUTES_S + MOST_LOOKS_RATIO
    looks_ratio = min(looks_ms / 1e3 / metrics.duration_s, most_ratio)
    return windows_ms / 1e3 / TEN_MINUTES_S + looks_ratio + notes_ratio
