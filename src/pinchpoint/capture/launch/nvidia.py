"""NVIDIA's command-line profilers: where they are, how nsys is called, what refusals mean."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from pinchpoint.capture.launch.launcher import environment_of
from pinchpoint.capture.settings import Settings
from pinchpoint.errors import MeasurementInvalid, UsageError
from pinchpoint.frozen import dataclass
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
METRICS_SINCE = (2024, 2)  # the first with --gpu-metrics-devices instead of --gpu-metrics-device


def under_nsys(command: Sequence[str], tool: Tool, folder: Path) -> list[str]:
    """The command under nsys; its report becomes ``nsys/report.nsys-rep`` of the run folder.

    The program's hooks open and close the range (``windows/nsys.py``), so start-up, compilation
    and warm-up are not in the report. Every kernel of a CUDA graph is.
    """
    options = [
        "--trace=cuda,nvtx,osrt,cudnn,cublas",
        "--cuda-memory-usage=true",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--sample=none",  # CPU sampling is forbidden in most containers
        "--cpuctxsw=none",
        "--force-overwrite=true",
        f"--output={folder / NSYS / 'report'}",
    ]
    if tool.version is None or tool.version >= OLDEST:
        options.append("--cuda-graph-trace=node")
    if _gives_metrics(tool):
        options.append("--gpu-metrics-devices=all")
    return [str(tool.path), "profile", *options, *command]


def _gives_metrics(tool: Tool) -> bool:
    """Whether this user may sample the device's metrics; where not, nsys would refuse to start."""
    if tool.version is not None and tool.version < METRICS_SINCE:
        return False
    try:
        done = subprocess.run(
            [str(tool.path), "profile", "--gpu-metrics-devices=help"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_SECONDS,
            check=False,
            cwd="/",
        )
    except (OSError, subprocess.SubprocessError):
        return False
    said = done.stdout + done.stderr
    return re.search(r"^\s*all:", said, re.M) is not None and "privilege" not in said


# ------------------------------------------------------------------------------------------------
# Profiles chosen kernels of a command with Nsight Compute.
#
# The program's hooks open the range around its steady steps; outside of it the program runs at
# full speed. Inside, each chosen kernel is replayed some forty times, so one launch of each shape
# (kernel, grid and block) is taken, wherever in the step it is.


LAUNCHES_A_KERNEL = 2  # of tools that cannot count by shape
BY_SHAPE_SINCE = (2023, 3)  # the first with --filter-mode per-launch-config
_BEFORE = r"^(?:void )?\W*(?:unnamed|anonymous namespace)?\W*"
MOST_WORDS = 40  # of a kernel's name that are matched; what follows are types of arguments
_CAST = r"(?:unsigned )?(?:int|bool|long|char|short)\)"
_SPELT_APART = re.compile(rf"\(anonymous namespace\)|<unnamed>|\({_CAST}")
_BETWEEN = rf"\W+(?:(?:unnamed|anonymous namespace|{_CAST})\W*)?"
_BEFORE = r"^(?:void )?\W*(?:unnamed|anonymous namespace)?\W*"
MOST_WORDS = 40  # of a kernel's name that are matched; what follows are types of arguments
# Tools spell these differently.
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


def name_pattern(kernel: str) -> str:
    """A regular expression for the whole name, template and all, however a tool spells it.

    Tools differ in spaces, in casts of template arguments (``(int)2``) and in unnamed namespaces.
    """
    plain = _SPELT_APART.sub("", re.sub(r"^(?:static |inline )*void ", "", kernel.strip()))
    return _BETWEEN.join(re.findall(r"\w+", plain)[:MOST_WORDS]) + ".*"


def may_profile(kernel: str) -> bool:
    """Whether a kernel can be replayed by itself."""
    return _NEVER.search(kernel) is None


def profile(command: Sequence[str], kernels: Sequence[str], tool: Tool, settings: Settings) -> Path:
    """Run the command under ncu; returns the report in the run folder.

    Raises MeasurementInvalid, with the reason in plain words, if there is none.
    """
    folder = Path(settings.folder) / NCU
    report = folder / "kernels.ncu-rep"
    output, code = "", 0
    for chosen in _choices(kernels, tool):
        output, code = _profiled(command, chosen, tool, settings, report)
        if report.exists():
            return report
        if _NOTHING not in output:
            break
    why = refusal(output) or f"ncu ended with code {code} and wrote no report"
    last = [line for line in output.splitlines() if line.startswith("==ERROR==")]
    raise MeasurementInvalid(why, hint=last[-1][:300] if last else "pinchpoint doctor")


_NOTHING = "No kernels were profiled"


def _choices(kernels: Sequence[str], tool: Tool) -> Iterator[list[str]]:
    """Options that choose the launches: by whole names, and if none matches by their functions."""
    by_shape = tool.version is None or tool.version >= BY_SHAPE_SINCE
    count = ["--filter-mode=per-launch-config", "--launch-count=1"]
    count = count if by_shape else [f"--launch-count={LAUNCHES_A_KERNEL * len(kernels)}"]
    names = "|".join(dict.fromkeys(name_pattern(k) for k in kernels))
    if by_shape:
        yield ["--kernel-name-base=demangled", f"--kernel-name=regex:{_BEFORE}({names})$", *count]
    functions = "|".join(dict.fromkeys(re.escape(function_name(k)) for k in kernels))
    yield [f"--kernel-name=regex:^({functions})$", *count]


def _profiled(
    command: Sequence[str], chosen: Sequence[str], tool: Tool, settings: Settings, report: Path
) -> tuple[str, int]:
    """One run under ncu: what it said, and its exit code."""
    options = [
        "--target-processes=all",
        "--profile-from-start=off",
        *chosen,
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
        return said.read(), done.returncode


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
