"""NVIDIA's command-line profilers: where they are, how nsys is called, what refusals mean."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pinchpoint.capture.launch.launcher import environment_of
from pinchpoint.capture.settings import Settings
from pinchpoint.errors import MeasurementInvalid, UsageError
from pinchpoint.run_folder.layout import NCU, NSYS

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


# ------------------------------------------------------------------------------------------------
# Profiles chosen kernels of a command with Nsight Compute.
#
# The program's hooks open the range around its steady steps; outside of it the program runs at
# full speed. Inside, each chosen kernel is replayed some forty times, so few launches are taken.


LAUNCHES_A_KERNEL = 2  # the second shows whether the first was odd; each costs 40 replays
_FUNCTION = re.compile(r"(?:[\w~]+(?:<.*>)?::)*([\w~]+)")
_EXPORT_SECONDS = 300  # only a tool that hangs takes longer for some kernels
# Kernels of collectives wait for other ranks: replaying one of them alone never ends.
_NEVER = re.compile(r"nccl|rccl|nvshmem", re.I)


def function_name(kernel: str) -> str:
    """The name that ncu matches by: without return type, namespaces, template and arguments.

    >>> function_name("void at::native::vectorized_elementwise_kernel<4, float>(int, float)")
    'vectorized_elementwise_kernel'
    """
    text = re.sub(r"^(?:static |inline )*void ", "", kernel.strip())
    text = text.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    depth, plain = 0, []
    for character in text:
        depth += character in "<("
        if depth == 0:
            plain.append(character)
        depth -= character in ">)"
    match = _FUNCTION.match("".join(plain))
    return match[1] if match else text


def may_profile(kernel: str) -> bool:
    """Whether a kernel can be replayed by itself."""
    return _NEVER.search(kernel) is None


def profile(command: Sequence[str], kernels: Sequence[str], tool: Tool, settings: Settings) -> Path:
    """Run the command under ncu; returns the report in the run folder.

    Raises MeasurementInvalid, with the reason in plain words, if there is none.
    """
    folder = Path(settings.folder) / NCU
    report = folder / "kernels.ncu-rep"
    names = "|".join(dict.fromkeys(re.escape(function_name(k)) for k in kernels))
    options = [
        "--target-processes=all",
        "--profile-from-start=off",
        f"--kernel-name=regex:^({names})$",
        f"--launch-count={LAUNCHES_A_KERNEL * len(kernels)}",
        "--set=full",
        "--clock-control=none",  # the clocks of the program, not the base clock
        "--force-overwrite",
        f"--export={report}",
    ]
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        # ncu mixes its messages into standard output; the program's own error output stays free.
        done = subprocess.run(
            [str(tool.path), *options, *command],
            env=environment_of(settings),
            stdout=said,
            check=False,
        )
        said.seek(0)
        output = said.read()
    if report.exists():
        return report
    why = refusal(output) or f"ncu ended with code {done.returncode} and wrote no report"
    last = [line for line in output.splitlines() if line.startswith("==ERROR==")]
    raise MeasurementInvalid(why, hint=last[-1][:300] if last else "pinchpoint doctor")


def as_csv(report: Path, tool: Tool) -> Path | None:
    """The report as a table of raw metrics beside it, for people and other tools; None if not."""
    target = report.with_suffix(".csv")
    words = [str(tool.path), "--import", str(report), "--csv", "--page=raw", "--print-units=base"]
    try:
        with tempfile.TemporaryDirectory() as empty, target.open("wb") as file:
            done = subprocess.run(
                words, stdout=file, timeout=_EXPORT_SECONDS, check=False, cwd=empty
            )
    except (OSError, subprocess.SubprocessError):
        return None
    return target if done.returncode == 0 else None
