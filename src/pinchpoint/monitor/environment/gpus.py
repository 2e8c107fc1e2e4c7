"""NVIDIA devices through NVML: what each is and how it is set. No CUDA context is made."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pinchpoint.monitor.environment.facts import Facts, Unreadable, file_number

_MILLIWATTS = 1000.0
_MAX_NVLINKS = 18  # NVML_NVLINK_MAX_LINKS on Hopper


@contextmanager
def nvml() -> Iterator[Any]:
    """The NVML module, initialised; Unreadable, with the reason, where there is none."""
    try:
        import pynvml
    except ImportError:
        raise Unreadable("nvidia-ml-py is not installed") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise Unreadable(f"NVML: {error}") from None
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def gpus() -> tuple[dict[str, Any], dict[str, str]]:
    """Driver facts and one record a device, in NVML's order."""
    facts = Facts("gpu")
    try:
        with nvml() as lib:
            facts.read("driver", lambda: _text(lib.nvmlSystemGetDriverVersion()))
            facts.read("cuda_driver", lambda: _cuda(lib.nvmlSystemGetCudaDriverVersion_v2()))
            facts.read("count", lib.nvmlDeviceGetCount)
            facts.put("mps", "CUDA_MPS_PIPE_DIRECTORY" in os.environ)
            devices = []
            for index in range(facts.values["count"] or 0):
                one = _device(lib, index)
                devices.append(one.values)
                facts.unknown |= one.unknown
            facts.put("devices", devices)
            facts.read("topology", lambda: _topology(lib, len(devices)))
    except Unreadable as why:
        for name in ("driver", "cuda_driver", "count", "devices", "mps", "topology"):
            facts.no(name, str(why))
    return facts.values, facts.unknown


def _device(lib: Any, index: int) -> Facts:
    handle = lib.nvmlDeviceGetHandleByIndex(index)
    facts = Facts(f"gpu.devices.{index}")
    facts.read("name", lambda: _text(lib.nvmlDeviceGetName(handle)))
    facts.read("uuid", lambda: _text(lib.nvmlDeviceGetUUID(handle)))
    facts.read("pci", lambda: _text(lib.nvmlDeviceGetPciInfo(handle).busId))
    facts.read("vbios", lambda: _text(lib.nvmlDeviceGetVbiosVersion(handle)))
    facts.read("memory_bytes", lambda: int(lib.nvmlDeviceGetMemoryInfo(handle).total))
    facts.read("bar1_bytes", lambda: int(lib.nvmlDeviceGetBAR1MemoryInfo(handle).bar1Total))
    facts.read("compute_capability", lambda: list(lib.nvmlDeviceGetCudaComputeCapability(handle)))
    facts.no("sm_count", "needs a CUDA context, which this record does not make")
    facts.no("l2_bytes", "needs a CUDA context, which this record does not make")
    _clocks_and_power(facts, lib, handle)
    _modes(facts, lib, handle)
    _links(facts, lib, handle)
    facts.read("processes", lambda: len(lib.nvmlDeviceGetComputeRunningProcesses(handle)))
    facts.read(
        "temperature_c", lambda: lib.nvmlDeviceGetTemperature(handle, lib.NVML_TEMPERATURE_GPU)
    )
    return facts


def _clocks_and_power(facts: Facts, lib: Any, handle: Any) -> None:
    sm, memory = lib.NVML_CLOCK_SM, lib.NVML_CLOCK_MEM
    facts.read("application_sm_mhz", lambda: lib.nvmlDeviceGetApplicationsClock(handle, sm))
    facts.read("application_mem_mhz", lambda: lib.nvmlDeviceGetApplicationsClock(handle, memory))
    facts.read("max_sm_mhz", lambda: lib.nvmlDeviceGetMaxClockInfo(handle, sm))
    facts.read("max_mem_mhz", lambda: lib.nvmlDeviceGetMaxClockInfo(handle, memory))
    facts.no("locked_clocks", "NVML sets locked clocks but cannot be asked for them")
    facts.read("power_limit_w", lambda: lib.nvmlDeviceGetPowerManagementLimit(handle) / _MILLIWATTS)
    facts.read(
        "power_limit_default_w",
        lambda: lib.nvmlDeviceGetPowerManagementDefaultLimit(handle) / _MILLIWATTS,
    )
    facts.read(
        "power_limit_max_w",
        lambda: lib.nvmlDeviceGetPowerManagementLimitConstraints(handle)[1] / _MILLIWATTS,
    )


def _modes(facts: Facts, lib: Any, handle: Any) -> None:
    facts.read("persistence", lambda: bool(lib.nvmlDeviceGetPersistenceMode(handle)))
    facts.read("compute_mode", lambda: int(lib.nvmlDeviceGetComputeMode(handle)))
    facts.read("ecc", lambda: bool(lib.nvmlDeviceGetEccMode(handle)[0]))
    facts.read("ecc_pending", lambda: bool(lib.nvmlDeviceGetEccMode(handle)[1]))
    facts.read("mig", lambda: bool(lib.nvmlDeviceGetMigMode(handle)[0]))
    facts.read("row_remap_pending", lambda: bool(lib.nvmlDeviceGetRemappedRows(handle)[2]))


def _links(facts: Facts, lib: Any, handle: Any) -> None:
    facts.read("pcie_gen", lambda: lib.nvmlDeviceGetCurrPcieLinkGeneration(handle))
    facts.read("pcie_gen_max", lambda: lib.nvmlDeviceGetMaxPcieLinkGeneration(handle))
    facts.read("pcie_width", lambda: lib.nvmlDeviceGetCurrPcieLinkWidth(handle))
    facts.read("pcie_width_max", lambda: lib.nvmlDeviceGetMaxPcieLinkWidth(handle))
    facts.read("nvlinks_active", lambda: _active_nvlinks(lib, handle))
    facts.read("numa_node", lambda: _numa_node(facts.values["pci"]))


def _active_nvlinks(lib: Any, handle: Any) -> int:
    active = 0
    for link in range(_MAX_NVLINKS):
        try:
            active += int(lib.nvmlDeviceGetNvLinkState(handle, link) == 1)
        except lib.NVMLError:
            break
    return active


def _numa_node(pci: str | None) -> int:
    if pci is None:
        raise Unreadable("the PCI address is not known")
    domain, _, rest = pci.lower().partition(":")
    return file_number(Path("/sys/bus/pci/devices") / f"{domain[-4:]}:{rest}" / "numa_node")


def _topology(lib: Any, count: int) -> list[list[int]]:
    """NVML's common-ancestor level of each pair: 0 same board … 50 across sockets."""
    handles = [lib.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
    return [
        [0 if a is b else int(lib.nvmlDeviceGetTopologyCommonAncestor(a, b)) for b in handles]
        for a in handles
    ]


def _cuda(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
