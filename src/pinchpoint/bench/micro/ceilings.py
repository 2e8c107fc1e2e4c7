"""How much work a call does at least, and whether its time is physically possible."""

import sys
from collections.abc import Iterable
from typing import Any

from pinchpoint.bench.micro.backends import flat
from pinchpoint.hardware.dtypes import format_of
from pinchpoint.hardware.specs import DeviceSpec, find_spec


def least_bytes(arguments: Iterable[Any], result: Any) -> float | None:
    """Inputs read once and outputs written once, each storage counted once; None if no arrays.

    A lower bound of the traffic: what the function holds elsewhere (weights of a closure) is not
    seen.
    """
    sizes: dict[Any, int] = {}
    for value in flat([*arguments, result]):
        size = getattr(value, "nbytes", None)
        if isinstance(size, int) and hasattr(value, "shape"):
            sizes[_address(value)] = max(size, sizes.get(_address(value), 0))
    return float(sum(sizes.values())) if sizes else None


def _address(value: Any) -> Any:
    pointer = getattr(value, "data_ptr", None)
    return pointer() if callable(pointer) else id(value)


def counted_flop(call: Any) -> float | None:
    """FLOP of one call by torch's own counter (products, convolutions, attention); None if it
    counts nothing, or torch is not in use."""
    if sys.modules.get("torch") is None:
        return None
    try:
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter:
            call()
        return float(counter.get_total_flops()) or None
    except Exception:  # a compiled or custom call that the counter cannot enter has no count
        return None


def spec_of(device: str) -> DeviceSpec | None:
    """The data sheet, if the device is known."""
    return find_spec(device)


def highest_flop_per_s(spec: DeviceSpec, values: Iterable[Any]) -> float | None:
    """The peak for the types of these arrays; float32 may run as TF32, so the higher one."""
    types = {format_of(str(getattr(value, "dtype", ""))) for value in flat(values)}
    names = {known.peak for known in types if known is not None and known.peak is not None}
    if "fp32" in names:
        names.add("tf32")
    if "fp64" in names:
        names.add("fp64_matrix")
    peaks = [p for p in (spec.peak_flop_per_s(n) for n in names) if p is not None]
    return max(peaks, default=None)
