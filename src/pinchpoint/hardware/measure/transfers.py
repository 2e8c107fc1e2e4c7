"""Copies between host and device and between devices, and what a launch costs."""

import time
from collections.abc import Iterator
from typing import Any

from pinchpoint.hardware.ceilings import Measurement
from pinchpoint.hardware.measure.timing import Machine

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
