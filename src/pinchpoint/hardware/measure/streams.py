"""Memory bandwidth: copy, triad and read over arrays that no cache holds.

As in BabelStream the best sample counts, since nothing makes memory faster than it is, and the
first is dropped.
"""

from collections.abc import Iterator
from typing import Any

from pinchpoint.hardware.ceilings import Measurement
from pinchpoint.hardware.measure.clocks import ClockRates
from pinchpoint.hardware.measure.timing import Machine

_L2_TIMES = 4  # an array is at least this many times L2
_GPU_ARRAY_BYTES = 1 << 30  # many times any L2; a copy takes about a millisecond
_CPU_ARRAY_BYTES = 1 << 27  # larger than most last-level caches
_MEMORY_SHARE = 0.2  # of free memory, for each of three arrays
_SAMPLES = 20  # the best counts; together less than a second


def bandwidths(machine: Machine, clocks: ClockRates) -> Iterator[Measurement]:
    """Bytes/s of copy (read + write), triad (two reads + write) and read (a sum)."""
    torch = machine.torch
    count = _array_bytes(machine) // 4
    a, b = (torch.randn(count, device=machine.device) for _ in range(2))
    c = torch.empty_like(a)
    works: tuple[tuple[str, int, Any], ...] = (
        ("copy", 2, lambda: c.copy_(a)),
        ("triad", 3, lambda: torch.add(a, b, alpha=3.0, out=c)),
        ("read", 1, lambda: torch.sum(a)),
    )
    for name, moves, work in works:
        timed = machine.bursts(work, bursts=_SAMPLES, rest_s=0, watch=clocks.watch)
        state = clocks.seen
        yield Measurement(
            what=name,
            value=moves * count * 4 / timed.best_ns * 1e9,
            unit="bytes/s",
            at=f"arrays of {count * 4 / 2**20:.0f} MiB, best of {_SAMPLES}",
            spread_ratio=timed.spread_ratio,
            sm_clock_hz=state.sm_clock_hz,
            power_w=state.power_w,
            throttled=state.throttled,
        )


def _array_bytes(machine: Machine) -> int:
    if not machine.on_gpu:
        return _CPU_ARRAY_BYTES
    free, _ = machine.torch.cuda.mem_get_info(machine.device)
    cache = getattr(machine.torch.cuda.get_device_properties(machine.device), "L2_cache_size", 0)
    wanted = max(_GPU_ARRAY_BYTES, _L2_TIMES * cache)
    return int(min(wanted, _MEMORY_SHARE * free)) // 4096 * 4096
