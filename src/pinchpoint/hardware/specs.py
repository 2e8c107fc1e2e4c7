"""Data sheets: the peaks of each device, and where each number comes from.

The numbers are in ``data/*.json``. All peaks are dense (no structured sparsity) and in FLOP/s,
multiply and add counted apart; integer peaks are operations/s. ``fp32`` and ``fp64`` are the vector
units, ``fp16``, ``bf16``, ``tf32``, ``fp8``, ``fp4`` and ``int8`` the matrix units where a device
has them, ``*_matrix`` the matrix units in that type.
"""

from collections.abc import Mapping
from dataclasses import field
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from pinchpoint.frozen import dataclass

MIB = 1024**2  # bytes


@dataclass(frozen=True, eq=False)
class DeviceSpec:
    """The data sheet of one device; None where it does not say."""

    name: str
    vendor: str
    architecture: str
    peaks_flop_per_s: Mapping[str, float]  # by type, dense
    memory_bytes_per_s: float | None
    reported: tuple[str, ...] = ()  # as drivers and frameworks spell the name
    compute_capability: tuple[int, int] | None = None
    multiprocessors: int | None = None
    clock_hz: float | None = None  # the boost clock that the vector peaks assume
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    link_bytes_per_s: float | None = None  # NVLink, Infinity Fabric, ICI; both directions together
    pcie_bytes_per_s: float | None = None  # one direction
    # Of products without a pause, at the power limit; by type, measured and on no data sheet.
    sustained_flop_per_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    source: str = ""
    other_sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def source_of(self, number: str) -> str:
        """The document that a number (a field of this class) comes from."""
        return self.other_sources.get(number, self.source)

    def peak_flop_per_s(self, dtype: str) -> float | None:
        """The dense peak for a type: ``bf16``, ``tf32``, ``fp32``, … None: unknown or absent."""
        return self.peaks_flop_per_s.get(dtype)

    def balance(self, dtype: str) -> float | None:
        """FLOP per byte of device memory at which both roofs meet."""
        peak = self.peak_flop_per_s(dtype)
        if peak is None or not self.memory_bytes_per_s:
            return None
        return peak / self.memory_bytes_per_s


@cache
def all_specs() -> tuple[DeviceSpec, ...]:
    """Every device that is known."""
    return tuple(_spec(entry, page) for page in _pages() for entry in page["device"])


@lru_cache(maxsize=1 << 8)  # recordings say it, in any words
def find_spec(reported: str | None) -> DeviceSpec | None:
    """The data sheet of a device by the name that the driver or framework reports, or None."""
    found = None if reported is None else _by_name().get(_normal(reported))
    return None if found is None else _spec(*found)


# Devices with one number of multiprocessors and one architecture differ by what is around the chip:
# V100 and V100S by 1.26 in their memory, the TITAN V and a V100S by 1.74, A100s by 1.31.
ALIKE_RATIO = 1.75
# Drivers report 0.98 to 1.07 of the round figure of a data sheet: GB or GiB, less what is reserved.
MEMORY_RATIO = 1.1


@lru_cache(maxsize=1 << 8)
def alike_spec(
    multiprocessors: int, architecture: str | None = None, memory_bytes: int | None = None,
    vendor: str | None = None,
) -> DeviceSpec | None:  # fmt: skip
    """The fastest of the devices that these facts fit, so that nothing can be faster than it says.

    None where they fit none, or devices that are not alike. One of ``architecture`` and
    ``memory_bytes`` is needed: multiprocessors alone are met by chance.
    """
    if architecture is None and memory_bytes is None:
        return None
    fit = [
        spec
        for spec in all_specs()
        if spec.multiprocessors == multiprocessors
        and (architecture is None or spec.architecture == architecture)
        and (vendor is None or spec.vendor == vendor)
        and (memory_bytes is None or _fits(memory_bytes, spec.memory_bytes))
    ]
    return max(fit, key=_speed) if fit and _are_alike(fit) else None


def _fits(said_bytes: int, sheet_bytes: int | None) -> bool:
    return sheet_bytes is not None and (
        1 / MEMORY_RATIO <= said_bytes / sheet_bytes <= MEMORY_RATIO
    )


def _speed(spec: DeviceSpec) -> tuple[float, float]:
    return spec.memory_bytes_per_s or 0.0, spec.peak_flop_per_s("fp32") or 0.0


def _are_alike(specs: list[DeviceSpec]) -> bool:
    """Whether their memories and vector units differ by little."""
    return all(
        min(values) > 0 and max(values) <= ALIKE_RATIO * min(values)
        for values in zip(*map(_speed, specs), strict=True)
    )


@cache
def _by_name() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """The entry of each name, and its page."""
    return {
        _normal(name): (entry, page)
        for page in _pages()
        for entry in page["device"]
        for name in (entry["name"], *entry.get("reported", ()))
    }


def _pages() -> tuple[dict[str, Any], ...]:
    return tuple(map(_page, sorted((Path(__file__).parent / "data").glob("*.json"))))


def _page(path: Path) -> dict[str, Any]:
    page: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    return page


def _normal(name: str) -> str:
    words = name.lower().replace("(r)", "").replace("(tm)", "").split()
    return " ".join(w for w in words if w not in {"nvidia", "amd", "intel", "graphics"})


def _spec(entry: dict[str, Any], page: dict[str, Any]) -> DeviceSpec:
    sources: dict[str, str] = page["sources"]
    capability = entry.get("compute_capability")
    return DeviceSpec(
        name=entry["name"],
        vendor=entry.get("vendor") or page["vendor"],
        architecture=entry["architecture"],
        peaks_flop_per_s=MappingProxyType({k: v * 1e12 for k, v in entry["tflops"].items()}),
        memory_bytes_per_s=_scaled(entry, "memory_gb_per_s", 1e9),
        reported=tuple(entry.get("reported", ())),
        compute_capability=None if capability is None else (capability[0], capability[1]),
        multiprocessors=entry.get("multiprocessors"),
        clock_hz=_scaled(entry, "clock_mhz", 1e6),
        l2_bytes=None if "l2_mib" not in entry else round(entry["l2_mib"] * MIB),
        memory_bytes=None if "memory_gb" not in entry else round(entry["memory_gb"] * 1e9),
        link_bytes_per_s=_scaled(entry, "link_gb_per_s", 1e9),
        pcie_bytes_per_s=_scaled(entry, "pcie_gb_per_s", 1e9),
        sustained_flop_per_s=MappingProxyType(
            {k: v * 1e12 for k, v in entry.get("sustained_tflops", {}).items()}
        ),
        source=sources[entry["source"]],
        other_sources=MappingProxyType(
            {number: sources[key] for number, key in entry.get("source_of", {}).items()}
        ),
    )


def _scaled(entry: dict[str, Any], key: str, unit: float) -> float | None:
    return entry[key] * unit if key in entry else None


# ------------------------------------------------------------------------------------------------
# Peaks of an NVIDIA device that has no data sheet here, from what the driver says about it.
#
# FLOP per cycle and multiprocessor are fixed by the compute capability (the throughput tables of
# the CUDA C++ programming guide and the architecture whitepapers); times multiprocessors and
# clock they give the peak. GeForce parts run fp16 and bf16 tensor work with fp32 accumulation at
# half the rate of their professional siblings; the lower one is used, as the name does not always
# tell.


SOURCE = "computed: multiprocessors x clock x FLOP per cycle of the compute capability"

FLOP_PER_CYCLE: dict[tuple[int, int], dict[str, int]] = {
    (6, 0): {"fp32": 128, "fp64": 64, "fp16": 256},
    (6, 1): {"fp32": 256, "fp64": 8},
    (7, 0): {"fp32": 128, "fp64": 64, "fp16": 1024},
    (7, 5): {"fp32": 128, "fp64": 4, "fp16": 512, "int8": 2048},
    (8, 0): {
        "fp32": 128, "fp64": 64, "fp64_matrix": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048,
        "int8": 4096,
    },
    (8, 6): {"fp32": 256, "fp64": 4, "tf32": 256, "fp16": 512, "bf16": 512, "int8": 2048},
    (8, 7): {"fp32": 256, "fp64": 4, "tf32": 512, "fp16": 1024, "bf16": 1024, "int8": 2048},
    (8, 9): {
        "fp32": 256, "fp64": 4, "tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024, "int8": 2048,
    },
    (9, 0): {
        "fp32": 256, "fp64": 128, "fp64_matrix": 256, "tf32": 2048, "fp16": 4096, "bf16": 4096,
        "fp8": 8192, "int8": 8192,
    },
    (10, 0): {
        "fp32": 256, "fp64": 128, "tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16384,
        "int8": 16384, "fp4": 32768,
    },
    (12, 0): {
        "fp32": 256, "fp64": 4, "tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024, "int8": 2048,
        "fp4": 4096,
    },
}  # fmt: skip


def derived_spec(
    name: str,
    compute_capability: tuple[int, int],
    multiprocessors: int,
    clock_hz: float,
    memory_bytes_per_s: float | None = None,
    l2_bytes: int | None = None,
) -> DeviceSpec | None:
    """A spec from driver facts, or None for a compute capability that is not in the table."""
    rates = FLOP_PER_CYCLE.get(compute_capability)
    if rates is None or multiprocessors <= 0 or clock_hz <= 0:
        return None
    per_unit = multiprocessors * clock_hz
    return DeviceSpec(
        name=name,
        vendor="nvidia",
        architecture=f"compute capability {compute_capability[0]}.{compute_capability[1]}",
        peaks_flop_per_s=MappingProxyType({k: v * per_unit for k, v in rates.items()}),
        memory_bytes_per_s=memory_bytes_per_s,
        compute_capability=compute_capability,
        multiprocessors=multiprocessors,
        clock_hz=clock_hz,
        l2_bytes=l2_bytes,
        source=SOURCE,
    )


def flop_per_cycle(spec: DeviceSpec, dtype: str) -> float | None:
    """FLOP per cycle of the whole device for a type, or None.

    The rate of the compute capability, doubled where the data sheet speaks of the professional
    part: its clock is no good for this, since some data sheets assume a lower one for tensor work.
    """
    peak = spec.peak_flop_per_s(dtype)
    if spec.multiprocessors is None or peak is None:
        return None
    if spec.compute_capability is not None:
        rates = FLOP_PER_CYCLE.get(_NEAREST.get(spec.compute_capability, spec.compute_capability))
        if rates is not None and dtype in rates and spec.clock_hz is not None:
            whole = rates[dtype] * spec.multiprocessors
            return whole * (2 if peak / spec.clock_hz > 1.5 * whole else 1)
    return None if spec.clock_hz is None else peak / spec.clock_hz


_NEAREST = {(10, 3): (10, 0), (12, 1): (12, 0)}
