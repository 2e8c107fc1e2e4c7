"""Notebooks: ``%load_ext pinchpoint`` once, then ``%%pinchpoint`` at the top of a cell.

The cell runs as it is, with the hooks of ``pinchpoint run`` in the notebook's own process, and its
diagnosis is shown below its output. A folder may follow: ``%%pinchpoint runs/cell``.
"""

import atexit
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pinchpoint.cli.output import note
from pinchpoint.errors import PinchpointError

if TYPE_CHECKING:
    from pinchpoint.report import Report

COMMAND = ("a", "notebook", "cell")


def load(shell: Any) -> None:
    """Make ``%%pinchpoint`` known to IPython."""
    shell.register_magic_function(partial(_magic, shell), "cell", "pinchpoint")


def _magic(shell: Any, line: str, cell: str) -> "Report | None":
    """Record this cell, and say why its steps take so long."""
    ran: list[Any] = []
    try:
        return record_cell(
            lambda: ran.append(shell.run_cell(cell)), Path(line.strip()) if line.strip() else None
        )
    except PinchpointError as error:
        if getattr(next(iter(ran), None), "success", True):  # else its own error has been shown
            note(f"pinchpoint: {error.message}")
        return None


def record_cell(run: Any, out: Path | None = None) -> "Report":
    """Call ``run`` with hooks on, and diagnose what was recorded.

    Raises PinchpointError where nothing was.
    """
    from pinchpoint.api import diagnose
    from pinchpoint.capture.api import CALM
    from pinchpoint.capture.launch import collect
    from pinchpoint.capture.launch.folder import new_run_folder
    from pinchpoint.capture.launch.launcher import QUIET_KINETO, Ended, begin
    from pinchpoint.capture.process.program import Program
    from pinchpoint.capture.settings import Settings
    from pinchpoint.monitor.environment import environment
    from pinchpoint.monitor.telemetry import Telemetry
    from pinchpoint.run_folder.layout import (
        ENVIRONMENT_FILE,
        FRAMEWORK_MARK,
        HOOKS_MARK,
        PROCESSES,
        TELEMETRY_FILE,
        write_json,
    )

    folder = new_run_folder(out, "cell").resolve()
    settings = Settings(
        str(folder),
        whole_round=True,
        bounded=True,
        names=True,
        samples=True,
        cell=True,
        launcher_pid=os.getppid(),
    )
    collect.begin(folder, COMMAND, settings)
    write_json(folder / ENVIRONMENT_FILE, environment())
    for mark in (HOOKS_MARK, FRAMEWORK_MARK):
        (folder / PROCESSES / mark).touch()
    os.environ.setdefault("KINETO_LOG_LEVEL", QUIET_KINETO)
    telemetry = Telemetry(folder / TELEMETRY_FILE, CALM, root_pid=os.getpid())
    program, began = Program(settings), begin()
    program.start()
    try:
        run()
    finally:
        program.finish()
        atexit.unregister(program.finish)
        ended = Ended(0, began.unix_ns, began.now_unix_ns(), telemetry.stop())
        collect.finish(folder, COMMAND, settings, ended)
    return diagnose(folder)
