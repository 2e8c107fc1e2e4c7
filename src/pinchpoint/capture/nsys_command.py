"""Wraps a command with Nsight Systems: the steady steps only, every kernel of a CUDA graph.

The program's hooks open and close the range (see ``nsys_window``), so start-up, compilation and
warm-up are not in the report.
"""

from collections.abc import Sequence
from pathlib import Path

from pinchpoint.capture.nvidia_tools import Tool
from pinchpoint.run_folder.layout import NSYS

OLDEST = (2022, 1)  # the first with --cuda-graph-trace


def wrapped(command: Sequence[str], tool: Tool, folder: Path) -> list[str]:
    """The command under nsys; its report becomes ``nsys/report.nsys-rep`` of the run folder."""
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
