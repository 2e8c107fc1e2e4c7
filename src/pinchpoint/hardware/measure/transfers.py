"""Copies between host and device and between devices, and what a launch costs."""

import time
from collections.abc import Iterator
from typing import Any

from pinchpoint.hardware.ceilings import Measurement
from pinchpoint.hardware.measure.timing import ClockRates, Machine

COPY_BYTES = 1 << 28  # 10 ms over PCIe 4: the start of the copy is no part of that
_BURSTS = 7  # the median of an odd number was measured
_LAUNCHES = 2_000  # about 10 ms of launches


def host_copies(machine: Machine) -> Iterator[Measurement]:
    """Bytes/s to and from the device, from pinned and from ordinary memory; median."""
    torch = machine.torch
    on_device = torch.empty(COPY_BYTES, dtype=torch.uint8, device=machine.device)
    for kind, pinned in (("pinned", True), ("pageable", False)):
        on_host = torch.ones(COPY_BYTES, dtype=torch.uint8, pin_memory=pinned)
        for name, target, source in (("h2d", on_device, on_host), ("d2h", on_host, on_device)):
            timed = machine.bursts(_copy(target, source), sample_ns=1, bursts=_BURSTS, rest_s=0)
            yield Measurement(
                what=f"{name}-{kind}",
                value=COPY_BYTES / timed.median_ns * 1e9,
                unit="bytes/s",
                at=f"{COPY_BYTES / 2**20:.0f} MiB, median of {_BURSTS}",
                spread_ratio=timed.spread_ratio,
            )


def device_copies(machine: Machine) -> Iterator[Measurement]:
    """Bytes/s to the next device, one direction, where both reach each other directly."""
    torch = machine.torch
    count, own = torch.cuda.device_count(), machine.device.index or 0
    peers = (i for i in range(count) if i != own and torch.cuda.can_device_access_peer(own, i))
    peer = next(peers, None)
    if peer is None:
        return
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device=machine.device)
    target = torch.empty(COPY_BYTES, dtype=torch.uint8, device=f"cuda:{peer}")
    timed = machine.bursts(_copy(target, source), bursts=_BURSTS, rest_s=0)
    yield Measurement(
        what="device-to-device",
        value=COPY_BYTES / timed.median_ns * 1e9,
        unit="bytes/s",
        at=f"device {own} to {peer}, {COPY_BYTES / 2**20:.0f} MiB, one direction",
        spread_ratio=timed.spread_ratio,
    )


def _copy(target: Any, source: Any) -> Any:
    return lambda: target.copy_(source, non_blocking=True)


def launches(machine: Machine) -> Iterator[Measurement]:
    """What a launch costs the host, and how long the device takes from one to the next.

    ``launch-host``: ns of the host a call while the device is busy elsewhere. ``launch-device``:
    ns from kernel to kernel when the queue is full. ``launch-latency``: ns from the call to the
    end of an empty queue's only kernel.
    """
    torch = machine.torch
    tiny = torch.zeros(1, device=machine.device)

    def launch() -> Any:
        return tiny.add_(1)

    machine.once(launch, 100)
    host = []
    for _ in range(5):
        machine.sync()
        start = time.perf_counter_ns()
        for _ in range(200):
            launch()
        host.append((time.perf_counter_ns() - start) / 200)
    back_to_back = min(machine.once(launch, _LAUNCHES) for _ in range(3))
    alone = []
    for _ in range(100):
        machine.sync()
        start = time.perf_counter_ns()
        launch()
        machine.sync()
        alone.append(time.perf_counter_ns() - start)
    alone.sort()
    yield Measurement(
        what="launch-host", value=min(host), unit="ns", at="tensor.add_(1), best of 5 times 200"
    )
    yield Measurement(
        what="launch-device",
        value=back_to_back,
        unit="ns",
        at=f"{_LAUNCHES} times tensor.add_(1), best of 3; the slower of host and device",
    )
    yield Measurement(
        what="launch-latency",
        value=float(alone[50]),
        unit="ns",
        at="launch and wait, median of 100",
    )


# ------------------------------------------------------------------------------------------------
# Memory bandwidth: copy, triad and read over arrays that no cache holds.
#
# As in BabelStream the best sample counts, since nothing makes memory faster than it is, and the
# first is dropped.


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
            waited_ratio=timed.waited_ratio,
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
