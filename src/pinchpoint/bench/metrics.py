"""``metrics.json``, one a run: schema ``bench.metrics/1``. Null has its reason in ``unknown``.

Raw samples are kept beside it (``steps.f64``: little-endian doubles, one step each, in the unit
of the summary); summaries are never stored alone. A number that is not finite is never written.
"""

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from pinchpoint.bench.folders import write_atomic
from pinchpoint.errors import UnreadableFile
from pinchpoint.json_text import indented
from pinchpoint.replacing import read_bounded, too_deep

Document = TypeVar("Document", bound=msgspec.Struct)

SCHEMA = "bench.metrics/1"
# What no measurement gives is refused where a file is read: it was edited or damaged.
Count = Annotated[int, msgspec.Meta(ge=0)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
Ratio = Annotated[float, msgspec.Meta(ge=0, le=1)]
_ROUNDED = 1e-9  # of a value: what computing two order statistics may put between equal ones


class WarmUpInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What was left out at the start, and whether the rest was steady."""

    policy: str  # steady_state, fixed, none
    steps: Count = 0
    duration_s: Amount | None = None
    converged: bool | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Order statistics of durations.

    ``…_bounds`` are the 95 % interval of a percentile, or where there are too few values for one,
    the side that is known: ``(38.5, null)`` is *at least 38.5*.
    """

    count: Count
    median: Amount | None = None
    mean: Amount | None = None
    min: Amount | None = None
    p90: Amount | None = None
    p95: Amount | None = None
    p99: Amount | None = None
    max: Amount | None = None
    mad: Amount | None = None
    median_ci95: tuple[Amount, Amount] | None = None
    p95_ci95: tuple[Amount, Amount] | None = None
    p99_ci95: tuple[Amount, Amount] | None = None
    p90_bounds: tuple[Amount | None, Amount | None] | None = None
    p95_bounds: tuple[Amount | None, Amount | None] | None = None
    p99_bounds: tuple[Amount | None, Amount | None] | None = None

    def __post_init__(self) -> None:
        known = [getattr(self, name) for name in ("min", "median", "p90", "p95", "p99", "max")]
        for low, high in pairwise(value for value in known if value is not None):
            if low > high * (1 + _ROUNDED):
                raise ValueError(f"percentiles out of order: {low:g} before {high:g}")


class TimedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The timed steps of a run."""

    count: Count
    unit: str  # ms
    clock: str  # cuda_event, host
    source: str  # what ended a step: optimizer AdamW, mark
    l2: str | None = None
    host_bound_ratio: Ratio | None = None
    samples_file: str | None = None
    step_time_ms: Summary
    ci_method: str | None = None
    lag1_autocorr: float | None = None
    effective_n: Amount | None = None
    spikes: Count = 0
    cpu_ms: Amount | None = None  # CPU time of the process in a step, mean
    own_ms: Amount | None = None  # a step without its thread's waiting for a CPU, mean
    instructions: Amount | None = None  # of a step, outside of the kernel, mean
    data_wait_ratio: Ratio | None = None  # share of the timed window spent waiting for data


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The whole process, from its start in Python to its end, without its imports."""

    wall_s: Amount
    own_s: Amount | None  # without waiting for a CPU; null: the system does not tell
    cpu_s: Amount  # ended children too
    imports_s: Amount  # wall time that is left out


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """Work over the whole timed window: the mean, so that spikes count."""

    value: Amount
    unit: str  # steps/s, samples/s, tokens/s, requests/s
    work: Amount
    work_unit: str
    window_s: Amount


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Peaks."""

    torch_peak_allocated_bytes: Count | None = None
    torch_peak_reserved_bytes: Count | None = None
    device_peak_used_bytes: Count | None = None
    host_peak_rss_bytes: Count | None = None


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One device over the timed window."""

    device: str
    sm_clock_mhz: dict[str, float] | None = None  # median, min
    memory_clock_mhz: dict[str, float] | None = None
    power_w: dict[str, float] | None = None  # mean
    energy_j: Amount | None = None
    energy_method: str | None = None
    temperature_c: dict[str, float] | None = None  # max
    slowdown_ratio: Ratio | None = None  # share of samples held down by heat or hardware
    power_cap_ratio: Ratio | None = None
    any_kernel_ratio: Ratio | None = None
    other_process_count: Count | None = None


class RunMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one run gave."""

    schema: str = SCHEMA
    run_id: str
    bench_id: str
    params: dict[str, Any] = {}
    params_sha256: str = ""
    arm: str | None = None
    pair_index: int | None = None
    order_index: Count = 0
    session_id: str = ""
    started_utc: str
    duration_s: Amount | None = None
    seed: int | None = None
    profiled: bool = False
    threads_sleep: bool = False  # while they wait for each other, as others took the CPUs
    at_once: bool = False  # with the other run of its pair
    swapped: bool = False  # on half of the CPUs, exchanged with the other run of its pair
    status: str  # ok, failed, timeout, cut
    exit_code: int | None = None
    invalid_reasons: tuple[str, ...] = ()
    work: Work | None = None
    warmup: WarmUpInfo | None = None
    steps: TimedSteps | None = None
    throughput: Throughput | None = None
    latency_ms: dict[str, Summary] | None = None  # ttft, tpot, itl, e2e
    goodput_req_per_s: Amount | None = None
    slo: dict[str, float] | None = None
    load_mode: str | None = None  # open, closed
    requests_ok: Count | None = None
    requests_failed: Count | None = None
    custom: dict[str, float] = {}  # found in the output by --metric
    memory: Memory | None = None
    gpu: tuple[Gpu, ...] | None = None
    counters: dict[str, float] = {}
    program: dict[str, Any] = {}  # switches of the program, read at its end
    env_file: str | None = None
    env_sha256: str | None = None
    artifacts: dict[str, str] = {}
    unknown: dict[str, str] = {}

    @property
    def valid(self) -> bool:
        """Whether the run may be compared."""
        return self.status == "ok" and not self.invalid_reasons


def write_metrics(path: Path, metrics: RunMetrics) -> None:
    """Write atomically."""
    write_atomic(path, encode(metrics))


def encode(document: msgspec.Struct) -> bytes:
    """JSON with line breaks and a last newline; what is not finite becomes null."""
    return indented(document) + b"\n"


def read_metrics(path: Path) -> RunMetrics:
    """Raises UnreadableFile for anything that is no ``bench.metrics`` of a version we know."""
    return read_document(path, RunMetrics, SCHEMA)


def read_document(path: Path, kind: type[Document], schema: str) -> Document:
    """A JSON document with a known schema; every other file gives a clear error."""
    text = read_bounded(path)
    try:
        head = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"{path}: not JSON ({error})", hint="was the copy cut off?") from None
    if too_deep(head):
        raise UnreadableFile(f"{path}: nested too deeply", hint="the file was edited or damaged")
    if head.get("schema") != schema:
        raise UnreadableFile(
            f"{path}: schema {head.get('schema')!r}, expected {schema!r}",
            hint="give a file that this version of Pinchpoint wrote",
        )
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise UnreadableFile(f"{path}: {error}", hint="the file was edited or damaged") from None
