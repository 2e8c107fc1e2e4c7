"""The roofs of a device: what it can compute and move, and where each figure comes from.

Ceilings measured on the machine itself are preferred to the data sheet, which no program reaches.
They come with the trace in ``Trace.ceilings``; see ``with_ceilings``.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.hardware import (
    DeviceSpec,
    alike_spec,
    derived_spec,
    find_spec,
    flop_per_cycle,
)
from pinchpoint.hardware.ceilings import Ceilings
from pinchpoint.regex import regex
from pinchpoint.trace import Device, Trace, once_per_trace


@dataclass(frozen=True)
class Roof:
    """One ceiling: FLOP/s or bytes/s, and its source in words."""

    per_s: float
    source: str
    measured: bool = False


@dataclass(frozen=True, eq=False)
class Roofs:
    """The ceilings that a device's work is held against."""

    device: str
    compute: Mapping[str, Roof]  # by type: bf16, tf32, fp32, …
    memory: Roof | None
    spec: DeviceSpec | None

    def balance(self, dtype: str) -> float | None:
        """FLOP per byte at which the roofs meet."""
        if dtype not in self.compute or self.memory is None:
            return None
        return self.compute[dtype].per_s / self.memory.per_s


def with_ceilings(trace: Trace, ceilings: Ceilings | None) -> Trace:
    """The trace with measured ceilings, if they are of its device."""
    if ceilings is None or ceilings.device not in {d.name for d in trace.devices}:
        return trace
    return replace(trace, ceilings=ceilings)


def spec_of(trace: Trace, number: int | None = None) -> DeviceSpec | None:
    """The data sheet of a device of the trace (default: the one with most work).

    A device without a data sheet here is derived from what the driver said of it, if it did; one
    without a name is taken as the fastest of those that its size and its kernels fit.
    """
    device = _device(trace, number)
    if device is None:
        return None
    if (spec := find_spec(device.name)) is not None:
        return spec
    if device.name is None and device.multiprocessors is not None:
        built_for, size = architecture_of_kernels(trace), device.memory_bytes
        alike = alike_spec(device.multiprocessors, built_for, size, device.vendor)
        if alike is not None:
            return alike
    if device.compute_capability is None or device.multiprocessors is None:
        return None
    return derived_spec(
        device.name or "unknown device",
        device.compute_capability,
        device.multiprocessors,
        device.clock_hz or 0.0,
        device.memory_bytes_per_s,
        device.l2_bytes,
    )


# What names of kernels say that they are built for; a device runs those of its own architecture and
# of earlier ones.
_BUILT_FOR = regex(r"(?:^|[^a-z])(?:(volta|turing|ampere|hopper)_|sm(\d{2,3})_)")
_ARCHITECTURES = ("volta", "turing", "ampere", "ada", "hopper", "blackwell")  # oldest first
_OF_NUMBER = {"70": 0, "72": 0, "75": 1, "80": 2, "86": 2, "87": 2, "89": 3, "90": 4, "100": 5}


@once_per_trace
def architecture_of_kernels(trace: Trace) -> str | None:
    """The newest architecture that a kernel of the trace is built for; None where none says."""
    ops = trace.device_ops
    if ops is None:
        return None
    names = (trace.names[name] for name in np.unique(ops["name"]).tolist())
    said = [found for name in names if (found := _BUILT_FOR.search(name)) is not None]
    at = [_ARCHITECTURES.index(m[1]) if m[1] else _OF_NUMBER.get(m[2], -1) for m in said]
    newest = max(at, default=-1)
    return None if newest < 0 else _ARCHITECTURES[newest].capitalize()


def roofs(trace: Trace, number: int | None = None) -> Roofs | None:
    """The roofs of a device of the trace; None if nothing is known of it."""
    spec = spec_of(trace, number)
    device = _device(trace, number)
    ceilings = trace.ceilings
    if ceilings is None or device is None or ceilings.device != device.name:
        ceilings = None
    if spec is None and ceilings is None:
        return None
    sheet = "data sheet" if spec is None else f"data sheet ({spec.source})"
    compute, memory = {}, None
    if spec is not None:
        compute = {t: Roof(peak, sheet) for t, peak in spec.peaks_flop_per_s.items()}
        if spec.memory_bytes_per_s:
            memory = Roof(spec.memory_bytes_per_s, sheet)
    if ceilings is not None:
        how = f"measured on this machine, {ceilings.measured_at[:10]}"
        compute |= {t: Roof(value, how, True) for t, value in ceilings.gemm_flop_per_s.items()}
        if ceilings.memory_bytes_per_s is not None:
            memory = Roof(ceilings.memory_bytes_per_s, how, True)
    name = None if device is None else device.name
    if name is None:
        alike = spec is not None and find_spec(spec.name) is not None
        name = f"unknown, like {spec.name}" if spec is not None and alike else "unknown device"
    return Roofs(name, MappingProxyType(compute), memory, spec)


def sustained_flop_per_s(trace: Trace, dtype: str) -> float | None:
    """The rate of products of a type that a device keeps up once it does nothing else, as measured
    on this machine or, of devices like it, noted beside the data sheet; None where neither was."""
    device, ceilings = _device(trace, None), trace.ceilings
    if ceilings is not None and device is not None and ceilings.device == device.name:
        measured = ceilings.find("gemm", dtype, "sustained")
        if measured is not None:
            return measured.value
    spec = spec_of(trace)
    return None if spec is None else spec.sustained_flop_per_s.get(dtype)


def at_clock(spec: DeviceSpec, clock_hz: float | None, memory_bytes_per_s: float | None) -> Roofs:
    """Roofs at the clock that a profiler held the device at, not at the boost clock."""
    compute = {}
    for dtype, peak in spec.peaks_flop_per_s.items():
        rate = flop_per_cycle(spec, dtype)
        if rate is not None and clock_hz:
            compute[dtype] = Roof(rate * clock_hz, f"at {clock_hz / 1e6:.0f} MHz")
        else:
            compute[dtype] = Roof(peak, f"data sheet ({spec.source})")
    memory = None
    if memory_bytes_per_s:
        memory = Roof(memory_bytes_per_s, "at the memory clock of the recording")
    elif spec.memory_bytes_per_s:
        memory = Roof(spec.memory_bytes_per_s, f"data sheet ({spec.source})")
    return Roofs(spec.name, MappingProxyType(compute), memory, spec)


def _device(trace: Trace, number: int | None) -> Device | None:
    if number is not None:
        return next((d for d in trace.devices if d.number == number), None)
    if len(trace.devices) > 1 and trace.device_ops is not None and len(trace.device_ops):
        counts: dict[int, int] = {}
        numbers = trace.device_ops["device"]
        for device in trace.devices:
            counts[device.number] = int((numbers == device.number).sum())
        return max(trace.devices, key=lambda d: counts[d.number])
    return trace.devices[0] if trace.devices else None
