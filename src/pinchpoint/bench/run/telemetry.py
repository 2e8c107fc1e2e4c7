"""Samples devices and host beside a run, and sums them up over the timed window.

The sampler lives in the parent process; the measured program is not touched. Devices are read
every 0.1 s (an NVML read costs microseconds; activity counters, which cost more, stay off), the
host every second.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from pinchpoint.bench.metrics import Gpu
from pinchpoint.frozen import dataclass
from pinchpoint.monitor import reasons
from pinchpoint.monitor.sample import Sample
from pinchpoint.monitor.telemetry import Rhythm, Telemetry

DEVICE_EVERY_S = 0.1  # ten looks a second: short runs get some too
HOST_EVERY_S = 1.0  # /proc of every process is read
RHYTHM = Rhythm(DEVICE_EVERY_S, HOST_EVERY_S, counters=False)


@dataclass(frozen=True)
class DeviceSamples:
    """Samples of the devices so far; ``no_devices`` says why there are none."""

    samples: list[Sample]
    no_devices: str | None


@contextmanager
def sampling(path: Path) -> Iterator[DeviceSamples]:
    """Look while the block runs; everything goes to the log at ``path``. Raises UsageError."""
    found: list[Sample] = []

    def take(samples: list[Sample]) -> None:
        found.extend(sample for sample in samples if sample.device is not None)

    telemetry = Telemetry(path, RHYTHM, own_pids=_own_pids, take=take)
    try:
        yield DeviceSamples(found, telemetry.no_devices)
    finally:
        telemetry.stop()


def _own_pids() -> set[int]:
    """This process and all that descend from it: the run is among them."""
    import psutil

    try:
        me = psutil.Process()
        return {me.pid, *(child.pid for child in me.children(recursive=True))}
    except (psutil.Error, OSError, IndexError):  # the latter two where there is no /proc
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
        slowdown_ratio=_share(masks, reasons.SLOWED),
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
