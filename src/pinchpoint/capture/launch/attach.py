"""Asks a running program for a recording: by its run folder, or by Kineto's signal.

The signal kills a process that was not started for it, so its environment is read first.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from pinchpoint.capture.settings import FOLDER_VARIABLE
from pinchpoint.errors import MeasurementInvalid, UsageError
from pinchpoint.frozen import dataclass
from pinchpoint.run_folder.layout import REQUEST_FILE, TRACES

_HOW = (
    "start it for that: pinchpoint run train.py; or, with any launcher, with KINETO_USE_DAEMON=1 "
    "and KINETO_CONFIG naming a file that says ENABLE_SIGUSR2=YES and ACTIVITIES_LOG_FILE=…"
)
_LOOK_EVERY_S = 0.5  # a person waits; half a second is not noticed
_SETTLED_S = 1.0  # a file that has not grown for so long is complete


@dataclass(frozen=True)
class Way:
    """How a process can be asked, and where its answer will appear."""

    by: str  # "run folder" or "signal"
    place: Path


def way_to(pid: int) -> Way:
    """How to ask this process. Raises UsageError if it is not there or was not started for it.

    ``pinchpoint run`` and launchers stand for the programs that they started.
    """
    environ = environment(pid)
    folder = environ.get(FOLDER_VARIABLE) or _folder_of_descendants(pid)
    if folder:
        return Way("run folder", Path(folder))
    config = environ.get("KINETO_CONFIG")
    if environ.get("KINETO_USE_DAEMON") and config:
        log = _log_file(Path(config))
        if log is not None:
            return Way("signal", log)
        raise UsageError(
            f"process {pid}: its KINETO_CONFIG does not say ENABLE_SIGUSR2=YES and a log file; the "
            "signal would end it",
            hint=_HOW,
        )
    raise UsageError(f"process {pid} was not started so that it can be recorded", hint=_HOW)


def environment(pid: int) -> Mapping[str, str]:
    """The environment that a process was started with."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        raise UsageError(f"there is no process {pid}", hint="ps aux | grep python") from None
    except PermissionError:
        raise UsageError(
            f"process {pid} belongs to another user", hint="attach as its user, or as root"
        ) from None
    except OSError as error:
        raise UsageError(f"process {pid}: {error.strerror}", hint="Linux only") from None
    pairs = (entry.partition("=") for entry in text.split("\0") if "=" in entry)
    return {name: value for name, _, value in pairs}


def _folder_of_descendants(pid: int) -> str | None:
    """The run folder of the first process below this one that has one."""
    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return None
    for process in below:
        try:
            folder = environment(process.pid).get(FOLDER_VARIABLE)
        except UsageError:  # it has ended, or is somebody else's
            continue
        if folder:
            return folder
    return None


def record(pid: int, timeout_s: float, progress: Callable[[str], None]) -> list[Path]:
    """Ask for a recording and wait for it; the new files.

    Raises MeasurementInvalid if none appears in time.
    """
    way = way_to(pid)
    if way.by == "run folder":
        folder, pattern = way.place / TRACES, "rank*"
    else:
        folder, pattern = way.place.parent, f"{way.place.stem}*"
    before = _stamps(folder, pattern)
    if way.by == "run folder":
        (way.place / REQUEST_FILE).write_text(str(time.time_ns()))
        progress(f"asked the run in {way.place}; it records at its next steps")
    else:
        os.kill(pid, signal.SIGUSR2)
        progress("signalled the process; its profiler warms up first, which takes some seconds")
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        time.sleep(_LOOK_EVERY_S)
        new = [p for p, stamp in _stamps(folder, pattern).items() if before.get(p) != stamp]
        finished = [p for p in new if not p.name.endswith(".tmp")]
        if finished and _settled(finished):
            return sorted(finished)
    raise MeasurementInvalid(
        f"process {pid} wrote no recording within {timeout_s:g} s",
        hint="is it still making steps? a longer --timeout waits longer",
    )


def _log_file(config: Path) -> Path | None:
    try:
        text = config.read_text(errors="replace")
    except OSError:
        return None
    settings = dict(re.findall(r"^\s*(\w+)\s*=\s*(\S+)\s*$", text, re.M))
    if settings.get("ENABLE_SIGUSR2", "").upper() not in ("YES", "TRUE", "1"):
        return None
    return Path(settings["ACTIVITIES_LOG_FILE"]) if "ACTIVITIES_LOG_FILE" in settings else None


def _stamps(folder: Path, pattern: str) -> dict[Path, int]:
    found = {}
    for path in folder.glob(pattern):
        try:
            found[path] = path.stat().st_mtime_ns
        except OSError:
            continue
    return found


def _settled(paths: list[Path]) -> bool:
    try:
        newest = max(path.stat().st_mtime for path in paths)
    except OSError:
        return False
    return time.time() - newest > _SETTLED_S
