"""Profiles chosen kernels of a command with Nsight Compute.

The program's hooks open the range around its steady steps; outside of it the program runs at full
speed. Inside, each chosen kernel is replayed some forty times, so few launches are taken.
"""

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pinchpoint.capture.launcher import environment_of
from pinchpoint.capture.settings import Settings
from pinchpoint.capture.tools.nvidia import Tool, refusal
from pinchpoint.errors import MeasurementInvalid
from pinchpoint.run_folder.layout import NCU

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
