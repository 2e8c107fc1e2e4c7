"""Profile the heaviest kernels of a run with Nsight Compute."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pinchpoint.cli.output import note, wrote
from pinchpoint.errors import UsageError

if TYPE_CHECKING:
    from pinchpoint.trace import Trace

WITH_VALUE = frozenset({"--top", "--out", "-o"})


def separate(words: Sequence[str]) -> list[str]:
    """``pinchpoint ncu [options] RUN [options] [command …]``: the command's words are its own."""
    position, recording = 0, None
    ours: list[str] = []
    while position < len(words):
        word = words[position]
        if word.partition("=")[0] in WITH_VALUE:
            taken = 1 if "=" in word else 2
            ours += words[position : position + taken]
            position += taken
        elif recording is None and not word.startswith("-"):
            recording, position = word, position + 1
        elif recording is None and word != "--":
            ours.append(word)
            position += 1
        else:
            break
    if recording is None:
        return list(words)
    rest = list(words[position:])
    return [*ours, "--", recording, *(rest[1:] if rest[:1] == ["--"] else rest)]


def command(
    recording: Path,
    /,
    *program: Annotated[str, Parameter(allow_leading_hyphen=True)],
    top: int = 5,
    out: Annotated[Path | None, Parameter(alias="-o")] = None,
) -> int:
    """Profile the kernels that decide in RECORDING, one launch of each shape, and diagnose them.

    Those that the findings are about come first, then those with most device time.

    RECORDING is a run folder, whose command is run again, or any recording followed by the command
    that made it: pinchpoint ncu trace.json.gz python train.py

    Parameters
    ----------
    recording
        A run folder, or a recording of the program.
    program
        The command to run; a run folder knows it.
    top
        How many kernels.
    out
        The run folder for the report (default: the recording, if it is a run folder).
    """
    from pinchpoint.capture.launch.nvidia import as_csv, profile, require
    from pinchpoint.capture.settings import Settings
    from pinchpoint.importers import load
    from pinchpoint.monitor.environment.facts import WITHHELD

    if top < 1:
        raise UsageError("--top must be at least 1")
    tool = require("ncu")
    trace = load(recording)
    kernels = deciding(trace, top)
    words = list(program) or list(trace.run.command if trace.run else ())
    if not words or WITHHELD in " ".join(words):
        raise UsageError(
            f"{recording} does not know the whole command that made it",
            hint=f"pinchpoint ncu {recording} python train.py",
        )
    folder = _folder(recording, out)
    note("profiling " + ", ".join(kernels))
    settings = Settings(
        folder=str(folder), tool="nsys", steps=2, nvtx=False, launcher_pid=os.getpid()
    )
    report = profile(words, kernels, tool, settings)
    as_csv(report, tool)
    wrote(report)
    return _present(trace, report)


def deciding(trace: "Trace", top: int) -> list[str]:
    """Names of kernels: of each finding the heaviest one, then the heaviest of all.

    Raises UsageError where the recording has none.
    """
    from pinchpoint.analysis.tables.kernels import kernels
    from pinchpoint.capture.launch.nvidia import may_profile
    from pinchpoint.report import diagnose

    heaviest = [row.name for row in kernels(trace).rows if may_profile(row.name)]
    if not heaviest:
        raise UsageError("the recording has no kernels", hint="record on a machine with a GPU")
    ops = trace.device_ops
    of_findings = []
    for finding in diagnose(trace).findings:
        rows = [row for item in finding.rows if item.table == "device_ops" for row in item.rows]
        mine = {trace.text(ops, "name", row) for row in rows} if ops is not None else set()
        of_findings += [name for name in heaviest if name in mine][:1]
    return list(dict.fromkeys([*of_findings, *heaviest]))[:top]


def _folder(recording: Path, out: Path | None) -> Path:
    from pinchpoint.capture.launch.folder import new_run_folder
    from pinchpoint.run_folder.layout import NCU, RUN_FILE

    if out is None and (recording / RUN_FILE).is_file():
        (recording / NCU).mkdir(exist_ok=True)
        return recording.resolve()
    return new_run_folder(out, "ncu")


def _present(trace: "Trace", report: Path) -> int:
    from pinchpoint.analysis.limits.counters import with_counters
    from pinchpoint.cli.recordings.diagnose import present
    from pinchpoint.importers import load
    from pinchpoint.report import diagnose

    joined = with_counters(trace, load(report))
    present([diagnose(joined)], "terminal")
    return 0
