"""Measure what this machine can really do; needs torch, and nothing else.

Bursts (a few milliseconds, cool) and sustained rates are kept apart, with the clocks seen; each
figure says the shape or size that gave it.
"""

import datetime
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.errors import MissingExtra, UsageError
from pinchpoint.hardware.ceilings import Ceilings, Measurement, Refused
from pinchpoint.hardware.measure import products, transfers
from pinchpoint.hardware.measure.timing import MOST_WAITED_RATIO, ClockRates, Machine
from pinchpoint.hardware.specs import DeviceSpec, derived_spec, find_spec, flop_per_cycle

# ------------------------------------------------------------------------------------------------
# What cannot be true: figures above the data sheet at the clocks that the device may run at, and
# figures whose samples do not agree.


TOLERANCE_RATIO = 1.02  # of timers and of rounded data sheets
# Of the median, from the 10th to the 90th percentile: a machine to itself stays below a tenth; at
# half, something else ran or the first calls were counted, and the figure is nobody's limit.
MOST_SPREAD_RATIO = 0.5


def sift(
    measurements: Iterable[Measurement], spec: DeviceSpec | None, max_clock_hz: float | None
) -> tuple[tuple[Measurement, ...], tuple[Refused, ...]]:
    """Keep what is possible, with its share of the data sheet; refuse the rest with the reason."""
    kept, refused = [], []
    for measured in measurements:
        sheet, most = _limits(measured, spec, max_clock_hz)
        why = _why_not(measured, most)
        if why is not None:
            refused.append(
                Refused(
                    what=measured.what,
                    dtype=measured.dtype,
                    value=measured.value,
                    unit=measured.unit,
                    why=why,
                    mode=measured.mode,
                )
            )
        elif sheet is not None:
            ratio = measured.value / sheet
            kept.append(msgspec.structs.replace(measured, data_sheet_ratio=ratio))
        else:
            kept.append(measured)
    return tuple(kept), tuple(refused)


def _why_not(measured: Measurement, most: float | None) -> str | None:
    if most is not None and measured.value > most * TOLERANCE_RATIO:
        return f"more than the device can do ({most:.4g} {measured.unit}): timed wrongly"
    waited = measured.waited_ratio
    if waited is not None and waited > MOST_WAITED_RATIO:
        return (
            f"others had its CPUs: for {100 * waited:.0f} % of the time one of its threads waited"
            " for one; measure again with nothing else on the machine"
        )
    spread = measured.spread_ratio
    if spread is not None and not spread <= MOST_SPREAD_RATIO:
        return (
            f"its samples differ by {100 * spread:.0f} % of their median: measure again with"
            " nothing else on the machine"
        )
    return None


def _limits(
    measured: Measurement, spec: DeviceSpec | None, max_clock_hz: float | None
) -> tuple[float | None, float | None]:
    """The data sheet's figure, and the most that is possible; None where nothing is known."""
    if spec is None:
        return None, None
    if measured.what == "gemm" and measured.dtype is not None:
        return _product_limits(measured.dtype, spec, max_clock_hz)
    if measured.what in {"copy", "triad", "read"}:
        return spec.memory_bytes_per_s, spec.memory_bytes_per_s
    if measured.what.startswith(("h2d", "d2h")):
        return spec.pcie_bytes_per_s, spec.pcie_bytes_per_s
    if measured.what == "device-to-device" and spec.link_bytes_per_s is not None:
        return spec.link_bytes_per_s / 2, spec.link_bytes_per_s / 2  # one of two directions
    return None, None


def _product_limits(
    dtype: str, spec: DeviceSpec, max_clock_hz: float | None
) -> tuple[float | None, float | None]:
    """Matrix units may serve a vector type too: fp64 products run on them where there are some."""
    names = (f"{dtype}_matrix", dtype)
    sheet = next((p for n in names if (p := spec.peak_flop_per_s(n)) is not None), None)
    if sheet is None:
        return None, None
    rate = max((flop_per_cycle(spec, n) or 0.0 for n in names), default=0.0)
    return sheet, max(sheet, rate * max_clock_hz if max_clock_hz else 0.0)


Progress = Callable[[str], None]

SUSTAINED_S = 8.0  # the last third counts: until then heat and power control settle


def measure(
    device: str = "cuda:0",
    *,
    dtypes: tuple[str, ...] | None = None,
    sustained_s: float = SUSTAINED_S,
    progress: Progress = lambda text: None,
) -> Ceilings:
    """Measure one device: products, memory, copies, launches.

    ``device`` is ``cuda:N`` or ``cpu``. Raises MissingExtra without torch, UsageError without the
    device or for an unknown type.
    """
    machine = Machine(_torch(), device)
    _check(machine, dtypes)
    began = time.monotonic()
    clocks = ClockRates(_bus_id(machine))
    found: list[Measurement] = []
    skipped: list[Refused] = []
    for measured in _memory(machine, clocks, progress):
        found.append(measured)
    wanted = dtypes or (products.GPU_DTYPES if machine.on_gpu else products.CPU_DTYPES)
    for dtype in wanted:
        progress(f"products in {dtype}")
        try:
            best, shape = products.best_product(machine, clocks, dtype)
        except products.NotSupported as reason:
            skipped.append(
                Refused(what="gemm", dtype=dtype, value=0, unit="FLOP/s", why=str(reason))
            )
            continue
        found.append(best)
        if dtype == wanted[0] and sustained_s > 0:
            progress(f"products in {dtype} for {sustained_s:.0f} s")
            found.append(products.sustained_product(machine, clocks, dtype, shape, sustained_s))
    spec = _spec(machine, clocks)
    kept, refused = sift(found, spec, clocks.max_sm_clock_hz())
    return Ceilings(
        device=device_name(machine),
        measured_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        fingerprint=_fingerprint(machine, clocks),
        measurements=kept,
        refused=refused + tuple(skipped),
        seconds=round(time.monotonic() - began, 1),
    )


def _memory(machine: Machine, clocks: ClockRates, progress: Progress) -> Iterator[Measurement]:
    progress("memory bandwidth")
    yield from transfers.bandwidths(machine, clocks)
    if machine.on_gpu:
        progress("copies and launches")
        yield from transfers.host_copies(machine)
        yield from transfers.device_copies(machine)
        yield from transfers.launches(machine)


def name_of(device: str) -> str:
    """The reported name of ``cuda:N`` or ``cpu``; UsageError if it is not there."""
    machine = Machine(_torch(), device)
    _check(machine, None)
    return device_name(machine)


def device_name(machine: Machine) -> str:
    """The name that the driver reports."""
    if machine.on_gpu:
        return str(machine.torch.cuda.get_device_name(machine.device))
    return _cpu_name()


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtra(
            "measuring ceilings needs PyTorch", hint="install torch for your device, then retry"
        ) from None
    return torch


def _check(machine: Machine, dtypes: tuple[str, ...] | None) -> None:
    torch = machine.torch
    if machine.on_gpu and not torch.cuda.is_available():
        raise UsageError(
            "there is no CUDA device here", hint="measure the CPU: pinchpoint ceilings --device cpu"
        )
    if machine.on_gpu and (machine.device.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"there is no {machine.device}", hint=f"devices: 0 to {torch.cuda.device_count() - 1}"
        )
    if not machine.on_gpu and machine.device.type != "cpu":
        raise UsageError(f"cannot measure {machine.device}", hint="devices: cuda:N, cpu")
    unknown = sorted(set(dtypes or ()) - set(products.GPU_DTYPES))
    if unknown:
        raise UsageError(
            f"unknown number format: {', '.join(unknown)}",
            hint=f"formats: {', '.join(products.GPU_DTYPES)}",
        )


def _bus_id(machine: Machine) -> str | None:
    if not machine.on_gpu or machine.torch.version.hip:
        return None
    facts = machine.torch.cuda.get_device_properties(machine.device)
    if not all(hasattr(facts, f"pci_{part}_id") for part in ("domain", "bus", "device")):
        return None
    return f"{facts.pci_domain_id:08X}:{facts.pci_bus_id:02X}:{facts.pci_device_id:02X}.0"


def _spec(machine: Machine, clocks: ClockRates) -> DeviceSpec | None:
    if not machine.on_gpu:
        return None
    if (spec := find_spec(device_name(machine))) is not None:
        return spec
    facts, clock = (
        machine.torch.cuda.get_device_properties(machine.device),
        clocks.max_sm_clock_hz(),
    )
    if clock is None:
        return None
    capability = (int(facts.major), int(facts.minor))
    return derived_spec(device_name(machine), capability, facts.multi_processor_count, clock)


def _fingerprint(machine: Machine, clocks: ClockRates) -> dict[str, Any]:
    """What the figures depend on; another driver or power limit makes another fingerprint."""
    torch = machine.torch
    runtime = torch.version.cuda or torch.version.hip if machine.on_gpu else None
    found = {
        "device": device_name(machine),
        "torch": str(torch.__version__),
        "runtime": runtime,
        "threads": None if machine.on_gpu else torch.get_num_threads(),
        **clocks.facts(),
    }
    return {k: v for k, v in found.items() if v is not None}
