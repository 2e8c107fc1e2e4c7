"""Samples devices and host beside a run, and sums them up over the timed window.

The sampler lives in the parent process; the measured program is not touched. Devices are read
every 0.1 s (an NVML read costs microseconds; activity counters, which cost more, stay off), the
host every second.
"""

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from pinchpoint.bench.metrics import Gpu
from pinchpoint.monitor import reasons
from pinchpoint.monitor.host import HostSource
from pinchpoint.monitor.nvml import NoDevices, NvmlSource
from pinchpoint.monitor.sample import Sample, Sampler
from pinchpoint.monitor.telemetry import TelemetryLog

DEVICE_EVERY_S = 0.1
HOST_EVERY_S = 1.0
HELD_DOWN = (
    reasons.HARDWARE_SLOWDOWN
    | reasons.HARDWARE_THERMAL
    | reasons.SOFTWARE_THERMAL
    | reasons.POWER_BRAKE
)


class Telemetry:
    """A context that samples while a run goes on and keeps the device samples.

    ``no_device`` says why there are none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.samples: list[Sample] = []
        self.no_device: str | None = None
        self._lock = threading.Lock()
        self._samplers: list[Sampler] = []

    def __enter__(self) -> "Telemetry":
        self._log = TelemetryLog(self.path)
        self._samplers = [Sampler([HostSource()], HOST_EVERY_S, self._host)]
        try:
            devices = NvmlSource(counters=False, own_pids=_own_pids)
        except NoDevices as why:
            self.no_device = str(why)
        else:
            self._samplers.append(Sampler([devices], DEVICE_EVERY_S, self._device))
        for sampler in self._samplers:
            sampler.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for sampler in self._samplers:
            sampler.stop()
        self._log.close()

    def _host(self, samples: list[Sample]) -> None:
        with self._lock:
            self._log.add(samples)

    def _device(self, samples: list[Sample]) -> None:
        with self._lock:
            self._log.add(samples)
            self.samples += samples


def _own_pids() -> set[int]:
    """This process and all that descend from it: the run is among them."""
    import psutil

    me = psutil.Process()
    try:
        return {me.pid, *(child.pid for child in me.children(recursive=True))}
    except psutil.Error:
        return {os.getpid()}


@dataclass(frozen=True)
class Window:
    """The timed part of a run, in nanoseconds since 1970."""

    start_unix_ns: int
    end_unix_ns: int


def devices_over(samples: Sequence[Sample], window: Window) -> tuple[Gpu, ...] | None:
    """One summary a device, of the samples within the window; None if there are none."""
    within = [s for s in samples if window.start_unix_ns <= s.unix_ns <= window.end_unix_ns]
    names = sorted({s.device for s in within if s.device is not None})
    return tuple(_gpu(name, [s for s in within if s.device == name]) for name in names) or None


def _gpu(device: str, samples: list[Sample]) -> Gpu:
    clocks, memory = _values(samples, "sm_clock_mhz"), _values(samples, "memory_clock_mhz")
    power, temperature = _values(samples, "power_w"), _values(samples, "temperature_c")
    others = _values(samples, "other_process_count")
    masks = [int(m) for m in _values(samples, "event_reasons")]
    energy_j = _energy_j(samples)
    return Gpu(
        device=device,
        sm_clock_mhz=_middle_and_least(clocks),
        memory_clock_mhz=_middle_and_least(memory),
        power_w={"mean": float(np.mean(power))} if power else None,
        energy_j=energy_j,
        energy_method=None if energy_j is None else f"power sampled every {DEVICE_EVERY_S} s",
        temperature_c={"max": max(temperature)} if temperature else None,
        slowdown_ratio=_share(masks, HELD_DOWN),
        power_cap_ratio=_share(masks, reasons.POWER_CAP),
        any_kernel_ratio=_mean(_values(samples, "any_kernel_ratio")),
        other_process_count=int(max(others)) if others else None,
    )


def _values(samples: list[Sample], name: str) -> list[float]:
    return [s.values[name] for s in samples if name in s.values]


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _middle_and_least(values: list[float]) -> dict[str, float] | None:
    return {"median": float(np.median(values)), "min": min(values)} if values else None


def _share(masks: list[int], bits: int) -> float | None:
    return sum(1 for m in masks if m & bits) / len(masks) if masks else None


def _energy_j(samples: list[Sample]) -> float | None:
    """Power integrated over the samples (trapezoids); a single sample says nothing."""
    known = [(s.unix_ns, s.values["power_w"]) for s in samples if "power_w" in s.values]
    if len(known) < 2:
        return None
    seconds = np.diff([ns for ns, _ in known]) / 1e9
    watts = np.array([w for _, w in known])
    return float(((watts[1:] + watts[:-1]) / 2 * seconds).sum())
