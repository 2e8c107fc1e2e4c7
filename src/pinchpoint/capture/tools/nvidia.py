"""NVIDIA's command-line profilers: where they are, how nsys is called, what refusals mean."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pinchpoint.errors import UsageError
from pinchpoint.run_folder.layout import NSYS

_FOLDERS = {
    "nsys": (
        "/usr/local/cuda/bin",
        "/opt/nvidia/nsight-systems/*/bin",
        "/opt/nvidia/nsight-systems-cli/*/bin",
        "/usr/lib/nsight-systems/bin",
    ),
    "ncu": ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute/*", "/usr/local/cuda-*/bin"),
}
_PACKAGES = {"nsys": "nsight-systems", "ncu": "nsight-compute"}
_VERSION_SECONDS = 20  # a first start from a slow disk

COUNTERS_FORBIDDEN = (
    "this user may not read the device's performance counters (ERR_NVGPUCTRPERM): run as root, "
    "give the container CAP_SYS_ADMIN or CAP_PERFMON, or load the driver with "
    "NVreg_RestrictProfilingToAdminUsers=0; rented machines often allow none of these"
)
_REFUSALS = (
    (re.compile(r"ERR_NVGPUCTRPERM"), COUNTERS_FORBIDDEN),
    (
        re.compile(r"driver resource was unavailable|Another profiler|already in use", re.I),
        "another profiler holds the device's counters (DCGM, nsys, a second ncu): end it first",
    ),
    (
        re.compile(r"unsupported (?:GPU|device)|No supported GPUs|too old", re.I),
        "this version of the tool does not know the device or its driver: install a newer one",
    ),
    (
        re.compile(r"No kernels were profiled"),
        "no kernel was profiled: the program ended before its steady steps, or launched none of "
        "these kernels",
    ),
)


@dataclass(frozen=True)
class Tool:
    """An installed profiler."""

    path: Path
    version: tuple[int, ...] | None  # None: it does not say


def find(name: str) -> Tool | None:
    """The newest installed one, on the path or where its packages put it."""
    on_path = shutil.which(name)
    found = [Path(on_path)] if on_path else []
    for pattern in _FOLDERS[name]:
        folder, _, rest = pattern.partition("*")
        places = Path(folder).glob("*" + rest) if "*" in pattern else [Path(pattern)]
        found += [place / name for place in places if os.access(place / name, os.X_OK)]
    tools = [Tool(path, version_of(path)) for path in dict.fromkeys(found)]
    return max(tools, key=lambda tool: tool.version or (0,), default=None)


def require(name: str) -> Tool:
    """The tool, or a UsageError that says how to get it."""
    tool = find(name)
    if tool is None:
        package = _PACKAGES[name]
        raise UsageError(
            f"{name} is not installed here",
            hint=f"install NVIDIA's package {package}, or record without it: pinchpoint run",
        )
    return tool


def version_of(path: Path) -> tuple[int, ...] | None:
    """``Version 2025.3.1.0`` as numbers."""
    try:
        done = subprocess.run(
            [str(path), "--version"],
            capture_output=True,
            timeout=_VERSION_SECONDS,
            check=False,
            cwd="/",
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(rb"[Vv]ersion (\d{4}(?:\.\d+)+)", done.stdout)
    return tuple(int(part) for part in match[1].split(b".")) if match else None


def refusal(output: str) -> str | None:
    """What a tool's output says in plain words, if it refused to work."""
    return next((meaning for sign, meaning in _REFUSALS if sign.search(output)), None)


OLDEST = (2022, 1)  # the first with --cuda-graph-trace


def under_nsys(command: Sequence[str], tool: Tool, folder: Path) -> list[str]:
    """The command under nsys; its report becomes ``nsys/report.nsys-rep`` of the run folder.

    The program's hooks open and close the range (``windows/nsys.py``), so start-up, compilation
    and warm-up are not in the report. Every kernel of a CUDA graph is.
    """
    options = [
        "--trace=cuda,nvtx,osrt",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--sample=none",  # CPU sampling is forbidden in most containers
        "--cpuctxsw=none",
        "--force-overwrite=true",
        f"--output={folder / NSYS / 'report'}",
    ]
    if tool.version is None or tool.version >= OLDEST:
        options.append("--cuda-graph-trace=node")
    return [str(tool.path), "profile", *options, *command]
