"""Data sheets: the peaks of each device, and where each number comes from.

The numbers are in ``data/*.toml``. All peaks are dense (no structured sparsity) and in FLOP/s,
multiply and add counted apart; integer peaks are operations/s. ``fp32`` and ``fp64`` are the vector
units, ``fp16``, ``bf16``, ``tf32``, ``fp8``, ``fp4`` and ``int8`` the matrix units where a device
has them, ``*_matrix`` the matrix units in that type.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

MIB = 1024**2


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
    folder = files("pinchpoint.hardware") / "data"
    texts = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    found = []
    for text in texts:
        page = tomllib.loads(text.read_text("utf-8"))
        found += [_spec(entry, page) for entry in page["device"]]
    return tuple(found)


def find_spec(reported: str | None) -> DeviceSpec | None:
    """The data sheet of a device by the name that the driver or framework reports, or None."""
    return None if reported is None else _by_name().get(_normal(reported))


@cache
def _by_name() -> dict[str, DeviceSpec]:
    return {_normal(name): s for s in all_specs() for name in (s.name, *s.reported)}


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
        source=sources[entry["source"]],
        other_sources=MappingProxyType(
            {number: sources[key] for number, key in entry.get("source_of", {}).items()}
        ),
    )


def _scaled(entry: dict[str, Any], key: str, unit: float) -> float | None:
    return entry[key] * unit if key in entry else None
