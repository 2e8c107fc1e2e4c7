"""What makes a run unfit for comparison; it is marked with the reason, never dropped silently."""

from collections.abc import Iterator

from pinchpoint.bench.metrics import Gpu, WarmUpInfo
from pinchpoint.frozen import dataclass

SLOWDOWN_LIMIT = 0.01  # of the timed window held down by heat or hardware
FAILED_REQUESTS_LIMIT = 0.001  # a failed request ends early and makes the others look fast
THROTTLED_LIMIT = 0.01  # of the run's time held back by the control group
# Load a CPU above which other programs take this one's cores: its wall time is then theirs as well.
# On such a machine (load 7 to 10 on 2 CPUs) 42 of 62 unchanged sessions of a small program were
# over 10 % slower than their history.
BUSY_LOAD_RATIO = 0.5


def is_busy(load: float | None, cpus: int | None) -> bool:
    """Whether wall time here is that of others as well; not where the load is not known."""
    return bool(load and cpus and load > BUSY_LOAD_RATIO * cpus)


@dataclass(frozen=True)
class HostChange:
    """What the host counters gained during the run; None where the host does not count."""

    swapped_in_bytes: int | None
    cgroup_throttled_us: int | None


def invalid_reasons(
    *,
    warmup: WarmUpInfo | None = None,
    gpus: tuple[Gpu, ...] | None = None,
    host: HostChange | None = None,
    duration_s: float = 0.0,
    recompiles: int = 0,
    allocator_retries: int = 0,
) -> tuple[str, ...]:
    """Reasons, empty for a run that may be compared."""
    return (
        *_from_program(warmup, recompiles, allocator_retries),
        *(reason for gpu in gpus or () for reason in _from_gpu(gpu)),
        *(_from_host(host, duration_s) if host else ()),
    )


def _from_program(
    warmup: WarmUpInfo | None, recompiles: int, allocator_retries: int
) -> Iterator[str]:
    if warmup is not None and warmup.converged is False:
        yield "the steps never became steady: measure longer, or give --warmup-steps"
    if recompiles:
        yield f"{recompiles} steps of the timed part compiled code"
    if allocator_retries:
        yield f"the allocator gave memory back and asked again {allocator_retries} times"


def _from_gpu(gpu: Gpu) -> Iterator[str]:
    if gpu.slowdown_ratio is not None and gpu.slowdown_ratio > SLOWDOWN_LIMIT:
        share = f"{100 * gpu.slowdown_ratio:.0f} % of the time"
        yield f"GPU {gpu.device} was slowed by heat or hardware {share}"
    if gpu.other_process_count:
        yield f"{gpu.other_process_count} processes of others on GPU {gpu.device}"


def _from_host(host: HostChange, duration_s: float) -> Iterator[str]:
    if host.swapped_in_bytes:
        yield f"{host.swapped_in_bytes / 2**20:.0f} MiB were swapped in"
    throttled_us = host.cgroup_throttled_us or 0
    if duration_s > 0 and throttled_us / 1e6 > THROTTLED_LIMIT * duration_s:
        yield f"the CPU quota held the run back for {throttled_us / 1e6:.1f} s"
