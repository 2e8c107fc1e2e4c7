"""Notebooks: ``%load_ext pinchpoint`` once, then ``%%pinchpoint`` at the top of a cell.

The cell runs as it is, with the hooks of ``pinchpoint run`` in the notebook's own process, and its
diagnosis is shown below its output. A folder may follow, and when to record work without steps:
``%%pinchpoint --after-seconds 0 runs/cell``.
"""

import atexit
import math
import os
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pinchpoint.cli.output import note
from pinchpoint.errors import PinchpointError, UsageError

if TYPE_CHECKING:
    from pinchpoint.report import Report

AFTER = "--after-seconds"


def load(shell: Any) -> None:
    """Make ``%%pinchpoint`` known to IPython."""
    shell.register_magic_function(partial(_magic, shell), "cell", "pinchpoint")


def _magic(shell: Any, line: str, cell: str) -> "Report | None":
    """Record this cell, and say why its steps take so long."""
    ran: list[Any] = []
    try:
        out, after_s = _asked(line)
        return record_cell(lambda: ran.append(shell.run_cell(cell)), out, after_s)
    except PinchpointError as error:
        if getattr(next(iter(ran), None), "success", True):  # else its own error has been shown
            note(f"pinchpoint: {error.message}")
        return None


def _asked(line: str) -> tuple[Path | None, float | None]:
    """The folder and the seconds that follow the magic's name. Raises UsageError."""
    try:
        words = shlex.split(line)
        after_s = None
        if AFTER in words:
            at = words.index(AFTER)
            after_s = float(words.pop(at + 1))
            words.pop(at)
    except (ValueError, IndexError):
        words, after_s = [], math.nan
    wrong = len(words) > 1 or any(word.startswith("-") for word in words)
    if wrong or not (after_s is None or 0 <= after_s < math.inf):
        raise UsageError(f"%%pinchpoint takes a folder and {AFTER} N, and nothing else")
    return (Path(words[0]) if words else None), after_s


def record_cell(run: Any, out: Path | None = None, after_s: float | None = None) -> "Report":
    """Call ``run`` with hooks on, and diagnose what was recorded.

    ``after_s``: seconds of work without steps after which it is recorded. Raises PinchpointError
    where nothing was.
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
        NOTEBOOK,
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
        after_s=after_s,
        cell=True,
        launcher_pid=os.getppid(),
    )
    collect.begin(folder, NOTEBOOK, settings)
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
        collect.finish(folder, NOTEBOOK, settings, ended)
    return diagnose(folder)
