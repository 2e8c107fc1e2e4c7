"""The roofs of a device: what it can compute and move, and where each figure comes from.

Ceilings measured on the machine itself are preferred to the data sheet, which no program reaches.
They come with the trace in ``Trace.ceilings``; see ``with_ceilings``.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from pinchpoint.frozen import dataclass
from pinchpoint.hardware import DeviceSpec, derived_spec, find_spec, flop_per_cycle
from pinchpoint.hardware.ceilings import Ceilings
from pinchpoint.trace import Device, Trace


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

    A device without a data sheet here is derived from what the driver said of it, if it did.
    """
    device = _device(trace, number)
    if device is None:
        return None
    if (spec := find_spec(device.name)) is not None:
        return spec
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
    name = device.name if device is not None and device.name else "unknown device"
    return Roofs(name, MappingProxyType(compute), memory, spec)


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
