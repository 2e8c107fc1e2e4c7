"""What cannot be true: figures above the data sheet at the clocks that the device may run at."""

from collections.abc import Iterable

import msgspec

from pinchpoint.hardware.ceilings import Measurement, Refused
from pinchpoint.hardware.specs import DeviceSpec, flop_per_cycle

TOLERANCE_RATIO = 1.02  # of timers and of rounded data sheets


def sift(
    measurements: Iterable[Measurement], spec: DeviceSpec | None, max_clock_hz: float | None
) -> tuple[tuple[Measurement, ...], tuple[Refused, ...]]:
    """Keep what is possible, with its share of the data sheet; refuse the rest with the reason."""
    kept, refused = [], []
    for measured in measurements:
        sheet, most = _limits(measured, spec, max_clock_hz)
        if most is not None and measured.value > most * TOLERANCE_RATIO:
            why = f"more than the device can do ({most:.4g} {measured.unit}): timed wrongly"
            refused.append(
                Refused(
                    what=measured.what,
                    dtype=measured.dtype,
                    value=measured.value,
                    unit=measured.unit,
                    why=why,
                )
            )
        elif sheet is not None:
            ratio = measured.value / sheet
            kept.append(msgspec.structs.replace(measured, data_sheet_ratio=ratio))
        else:
            kept.append(measured)
    return tuple(kept), tuple(refused)


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
