"""Short profiles beside a measurement: apart from the timed runs, which they would slow."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pinchpoint.cli.output import note, wrote

if TYPE_CHECKING:
    from pinchpoint.bench.run import Arm
    from pinchpoint.report.pages.result import ResultPage


def take_profile(arm: "Arm", folder: Path, *, nsys: bool = False) -> Path | None:
    """Record a few steps with ``pinchpoint run`` and give the trace; None, with a note, if there
    is none. A profile that fails never fails the measurement."""
    options = ["--nsys"] if nsys else []
    recorder = [sys.executable, "-m", "pinchpoint", "run", "-o", str(folder.resolve()), *options]
    note(f"recording a short profile of {arm.name or 'the command'}")
    log = folder.with_suffix(".log")
    _record([*recorder, "--no-diagnose", "--", *arm.command], arm, log)
    wanted = "nsys/*" if nsys else "traces/*.json*"
    traces = sorted(folder.glob(wanted))
    if not traces:
        note(f"no profile of {arm.name or 'the command'}: see {log}")
        return None
    return traces[0]


def _record(command: list[str], arm: "Arm", log: Path) -> None:
    with log.open("wb") as file:
        subprocess.run(
            command,
            cwd=arm.cwd,
            env=dict(os.environ) | dict(arm.env),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        )


def explain_regression(arms: "tuple[Arm, Arm]", folder: Path) -> "ResultPage | None":
    """Profile both arms and say what changed; kept as ``change.json`` and ``change.md``.

    Where ``nsys`` is installed, B is recorded with it as well, for a closer look.
    """
    from pinchpoint.bench.folders import write_atomic
    from pinchpoint.bench.metrics import encode
    from pinchpoint.compare import compare_profiles
    from pinchpoint.compare.profiles import with_findings
    from pinchpoint.errors import PinchpointError
    from pinchpoint.importers import load
    from pinchpoint.report import diagnose, markdown
    from pinchpoint.report.pages import compare as compare_page
    from pinchpoint.report.pages.result import blocks

    found = [take_profile(arm, folder / f"profile-{arm.name}") for arm in arms]
    if shutil.which("nsys"):
        take_profile(arms[1], folder / "profile-nsys-B", nsys=True)
    if found[0] is None or found[1] is None:
        return None
    try:
        traces = [load(path) for path in found if path]
        compared = compare_profiles(*traces)
        sides = [{f.id: f for f in diagnose(trace).findings} for trace in traces]
    except PinchpointError as error:
        note(f"the profiles cannot be compared: {error.message}")
        return None
    compared = with_findings(compared, *sides)
    page = compare_page.profiles_page(compared)
    write_atomic(folder / "change.json", encode(compared))
    write_atomic(folder / "change.md", markdown.render(blocks(page)).encode())
    wrote(folder / "change.md")
    return page
