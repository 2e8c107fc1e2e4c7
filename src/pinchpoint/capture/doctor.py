"""What can be profiled here, what stands in the way, and how to remove it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from pinchpoint.capture.launch.nvidia import COUNTERS_FORBIDDEN, find
from pinchpoint.frozen import dataclass
from pinchpoint.monitor.environment import environment
from pinchpoint.monitor.nvml import FIELDS, NoDevices, NvmlSource

State = Literal["ok", "note", "problem"]

LEAST_DISK_BYTES = 2 << 30  # four recordings at the default limit of growth
_PROBE_SECONDS = 120  # importing torch is slow from a network disk
_ADMIN_ONLY = Path("/proc/driver/nvidia/params")
_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38  # capability.h
_SLOWING = ("CUDA_LAUNCH_BLOCKING", "TORCH_SHOW_CPP_STACKTRACES", "NCCL_DEBUG")
_OTHER_PROFILERS = frozenset(
    {"nv-hostengine", "dcgm-exporter", "nsys", "ncu", "cuda-gdb", "compute-sanitizer"}
)

# Run in a process of its own: importing torch is slow, and may itself be what is broken.
_PROBE = """
import json, torch
c = torch.cuda
print(json.dumps({
    "version": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip,
    "available": c.is_available(), "devices": c.device_count() if c.is_available() else 0,
    "kineto": torch.profiler.kineto_available(),
    "activities": sorted(a.name for a in torch.profiler.supported_activities()),
}))
"""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: how it is, and what to do about it."""

    name: str
    state: State
    found: str
    fix: str = ""


def examine() -> list[Check]:
    """All checks, in an order that reads well; one that fails says so itself."""
    env = environment()
    torch = probe_torch()
    steps: list[Callable[[], Iterator[Check]]] = [
        lambda: _framework(torch),
        lambda: _driver(env, torch),
        _activity_counters,
        _kernel_counters,
        _tools,
        _other_profilers,
        lambda: _host(env),
        _variables,
        _disk,
    ]
    checks = [Check("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")]
    for step in steps:
        try:
            checks += step()
        except Exception as error:  # a doctor that falls ill still reports the rest
            checks.append(Check("doctor", "problem", f"{type(error).__name__}: {error}"))
    return checks


def probe_torch() -> dict[str, Any]:
    """What torch says of itself; ``{"error": …}`` if it cannot be imported."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        lines = done.stderr.strip().splitlines() if "done" in locals() else []
        return {"error": lines[-1] if lines else "it could not be imported in time"}
    return found


def _framework(torch: Mapping[str, Any]) -> Iterator[Check]:
    if "error" in torch:
        missing = "No module named 'torch'" in torch["error"]
        yield Check(
            "torch",
            "note" if missing else "problem",
            "not installed for this Python" if missing else torch["error"],
            "run Pinchpoint with the Python that trains; analysing recordings needs no torch",
        )
    else:
        build = f"CUDA {torch['cuda']}" if torch["cuda"] else f"ROCm {torch['hip']}"
        build = build if torch["cuda"] or torch["hip"] else "CPU only"
        yield Check("torch", "ok", f"{torch['version']} ({build})")
        if torch["kineto"]:
            yield Check("torch.profiler", "ok", "records " + ", ".join(torch["activities"]))
        else:
            fix = "install another build of torch"
            yield Check("torch.profiler", "problem", "built without Kineto", fix)
    for name in ("jax", "torch-xla"):
        try:
            yield Check(name, "ok", metadata.version(name))
        except metadata.PackageNotFoundError:
            continue


def _driver(env: Mapping[str, Any], torch: Mapping[str, Any]) -> Iterator[Check]:
    gpu, unknown = env["gpu"], env["unknown"]
    if not gpu["devices"]:
        why = unknown.get("gpu.devices", "no device")
        yield Check("GPU", "note", f"none to be seen ({why})", "CPU programs can be profiled")
        return
    names = ", ".join(str(device["name"]) for device in gpu["devices"])
    yield Check("GPU", "ok", f"{names}; driver {gpu['driver']}, CUDA up to {gpu['cuda_driver']}")
    build, newest = torch.get("cuda"), gpu["cuda_driver"]
    if build and newest and _major(build) > _major(newest):
        yield Check(
            "driver and torch",
            "problem",
            f"torch needs CUDA {build}, the driver offers {newest}",
            f"update the driver, or install torch for CUDA {_major(newest)}",
        )
    elif "error" not in torch and torch["cuda"] and not torch["available"]:
        yield Check(
            "driver and torch",
            "problem",
            "the driver shows devices, torch does not",
            "check CUDA_VISIBLE_DEVICES and that the container has the devices",
        )
    if any(device.get("mig") for device in gpu["devices"]):
        yield Check("MIG", "note", "on: time with any kernel is not available for slices")


def _activity_counters() -> Iterator[Check]:
    try:
        source = NvmlSource()
    except NoDevices:
        return
    try:
        for device in source.devices:
            why = source.missing.of(device.device).get(next(iter(FIELDS)))
            label = f"SM activity of GPU {device.device}"
            if why is None:
                yield Check(label, "ok", "through NVML")
            else:
                yield Check(label, "note", why, "Hopper or newer, driver 520 or newer")
    finally:
        source.close()


def _kernel_counters() -> Iterator[Check]:
    if not _ADMIN_ONLY.exists():
        return
    restricted = "RmProfilingAdminOnly: 1" in _ADMIN_ONLY.read_text(errors="replace")
    name = "kernel counters (ncu)"
    if not restricted:
        yield Check(name, "ok", "open to every user")
    elif _capable():
        yield Check(name, "ok", "for administrators, which this process is")
    else:
        yield Check(name, "problem", "for administrators only", COUNTERS_FORBIDDEN)


def _capable() -> bool:
    """Root with its capabilities, or a process that was given one of the two that matter."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return False
    for line in lines:
        if line.startswith("CapEff:"):
            mask = int(line.split()[1], 16)
            return bool(mask >> _CAP_SYS_ADMIN & 1 or mask >> _CAP_PERFMON & 1)
    return False


def _tools() -> Iterator[Check]:
    for name, use in (("nsys", "pinchpoint run --nsys"), ("ncu", "pinchpoint ncu")):
        tool = find(name)
        if tool is None:
            yield Check(name, "note", "not installed", f"needed for {use} only")
        else:
            version = ".".join(map(str, tool.version)) if tool.version else "unknown version"
            yield Check(name, "ok", f"{version} at {tool.path}")


def _other_profilers() -> Iterator[Check]:
    import psutil

    try:
        running = {p.info["name"] for p in psutil.process_iter(["name"])}
    except (OSError, IndexError):  # so psutil says that there is no /proc
        yield Check("/proc", "note", "not there: host load and processes are not seen", "mount it")
        return
    for name in sorted(running & _OTHER_PROFILERS):
        fix = "it may hold the device's tracing: end it if a recording has no kernels"
        yield Check("other profilers", "note", f"{name} is running", fix)


def _host(env: Mapping[str, Any]) -> Iterator[Check]:
    host = env["host"]
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    there, quota = host["cpus_logical"], host["cgroup_cpu_max"]
    limited = bool(quota and not str(quota).startswith("max"))
    found = f"{allowed} of {there} cores" + (f", quota {quota}" if limited else "")
    narrow = allowed is not None and there is not None and allowed < there
    fix = "check that the job was given the cores it needs" if narrow or limited else ""
    yield Check("cores", "note" if narrow or limited else "ok", found, fix)


def _variables() -> Iterator[Check]:
    for name in _SLOWING:
        value = os.environ.get(name, "")
        if value not in ("", "0"):
            yield Check(name, "problem" if "BLOCKING" in name else "note", value, f"unset {name}")


def _disk() -> Iterator[Check]:
    free = shutil.disk_usage(Path.cwd()).free
    state: State = "ok" if free >= LEAST_DISK_BYTES else "problem"
    fix = "" if state == "ok" else "recordings need some hundred megabytes: free some, or use -o"
    yield Check("disk", state, f"{free / 2**30:.0f} GiB free here", fix)


def _major(version: str) -> int:
    head = str(version).partition(".")[0]
    return int(head) if head.isdecimal() else 0
