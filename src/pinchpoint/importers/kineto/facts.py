"""Facts of the frame: devices, rank, options."""

from dataclasses import replace
from math import prod
from typing import Any

from pinchpoint.trace import Device

_OPTIONS = ("record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules")
_VENDORS = (
    ("nvidia", ("nvidia", "tesla", "geforce", "quadro", "titan", "rtx")),
    ("amd", ("amd", "instinct", "radeon", "gfx")),
    ("intel", ("intel", "arc", "max series", "data center gpu")),
    ("meta", ("artemis", "mtia")),
)


def devices(frame: dict[str, Any]) -> tuple[Device, ...]:
    """The devices that ``deviceProperties`` lists."""
    listed = frame.get("deviceProperties")
    if not isinstance(listed, list):
        return ()
    found = {}
    for position, item in enumerate(listed):
        if isinstance(item, dict):
            number = _whole(item.get("id"))
            number = position if number is None else number
            found[number] = _device(number, item, frame)
    return tuple(found[number] for number in sorted(found))


def _device(number: int, item: dict[str, Any], frame: dict[str, Any]) -> Device:
    name = item.get("name")
    name = name if isinstance(name, str) and name else None
    major, minor = _whole(item.get("computeMajor")), _whole(item.get("computeMinor"))
    vendor = _vendor(name, frame)
    # on AMD these two are the architecture (gfx90a: 9.0), not a CUDA compute capability
    capable = major is not None and minor is not None and vendor != "amd"
    return Device(
        number=number,
        name=name,
        memory_bytes=_whole(item.get("totalGlobalMem")),
        multiprocessors=_whole(item.get("numSms")),
        compute_capability=(major, minor) if capable else None,  # type: ignore[arg-type]
        vendor=vendor,
    )


def alike(listed: tuple[Device, ...], used: list[int]) -> tuple[Device, ...]:
    """With the devices that worked and are not listed, where all that the process sees are alike.

    ROCm lists them from 0 and, in operations, numbers them behind the CPUs.
    """
    rest = sorted(set(used) - {device.number for device in listed})
    if not rest or len({replace(device, number=0) for device in listed}) > 1:
        return listed
    return (*listed, *(replace(listed[0], number=number) for number in rest))


def devices_of_launches(numbers: list[int], launches: list[dict[str, Any]]) -> tuple[Device, ...]:
    """Devices that a file without ``deviceProperties`` ran on, by the arguments of some launches.

    Recorders wrote blocks and warps per multiprocessor before they described devices: the launch
    over that is how many there are. Empty where launches do not agree.
    """
    found = {units for args in launches if (units := _multiprocessors(args)) is not None}
    if len(found) != 1:
        return ()
    return tuple(Device(number, multiprocessors=next(iter(found))) for number in sorted(numbers))


_WARP = 32  # threads, on every NVIDIA device; others' recorders do not write these


def _multiprocessors(args: dict[str, Any]) -> int | None:
    """Of one launch; None where it does not say, or is too small for its rounded figures."""
    blocks, threads = _product(args.get("grid")), _product(args.get("block"))
    if blocks is None or threads is None:
        return None
    for each, whole in (("blocks per SM", blocks), ("warps per SM", blocks * -(-threads // _WARP))):
        share = args.get(each)
        if isinstance(share, int | float) and share > 0:
            units = whole / share
            near = units < _MOST_UNITS and abs(units - round(units)) < _ROUNDED * units
            return round(units) if near and round(units) else None
    return None


_MOST_UNITS = 1024  # more than any device has
_ROUNDED = 1e-4  # figures are written with single precision, and 8 digits at least


def _product(size: Any) -> int | None:
    if not isinstance(size, list) or not all(type(n) is int and n > 0 for n in size):
        return None
    return prod(size)


def _vendor(name: str | None, frame: dict[str, Any]) -> str | None:
    lower = (name or "").lower()
    for vendor, words in _VENDORS:
        if any(word in lower for word in words):
            return vendor
    if any(key.startswith(("hip_", "roctracer_", "rocm_")) for key in frame):
        return "amd"
    return "nvidia" if any(key.startswith(("cuda_", "cupti_")) for key in frame) else None


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        return None
    return value


def rank_and_size(frame: dict[str, Any]) -> tuple[int | None, int | None]:
    """Rank and world size of a distributed job, where the file says so."""
    distributed = frame.get("distributedInfo")
    if not isinstance(distributed, dict):
        return None, None
    rank, size = _whole(distributed.get("rank")), _whole(distributed.get("world_size"))
    return (rank if rank is None or rank < 2**31 else None), size


def collective_backend(frame: dict[str, Any]) -> str | None:
    """The library behind the collectives: nccl, gloo, …, where the file says so."""
    distributed = frame.get("distributedInfo")
    backend = distributed.get("backend") if isinstance(distributed, dict) else None
    return backend if isinstance(backend, str) else None


def options(frame: dict[str, Any]) -> dict[str, Any]:
    """The profiler's options that the file states."""
    return {name: bool(frame[name]) for name in _OPTIONS if name in frame}
