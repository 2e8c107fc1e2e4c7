"""Starts the program with hooks, samples the machine beside it, and waits for it."""

import os
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from pinchpoint.capture.launch.early import EarlyWord, Say
from pinchpoint.capture.launch.passing_on import held_back, put_off, run_to_its_end, start
from pinchpoint.capture.settings import Settings
from pinchpoint.errors import UsageError
from pinchpoint.frozen import dataclass
from pinchpoint.inside import path_with_hooks
from pinchpoint.monitor.telemetry import Rhythm, Sampled, Telemetry
from pinchpoint.run_folder.layout import TELEMETRY_FILE

INTERVAL_S = 0.2  # driver values refresh every 40 to 200 ms; one look costs 1.5 ms a device
CALM_AFTER_S = 600.0  # then once a second, so that the log of a day stays readable
RHYTHM = Rhythm(INTERVAL_S, INTERVAL_S, calm_after_s=CALM_AFTER_S)
QUIET_KINETO = "6"  # above every message level: the program's output stays its own
# With 1, kernels of CUDA graphs are missing from every recording but the first (seen with torch
# 2.11 and CUDA 13.0).
TEARDOWN = "TEARDOWN_CUPTI"


@dataclass(frozen=True)
class Began:
    """When a program began. Somebody may set the machine's clock while it runs."""

    unix_ns: int
    steady_ns: int

    def now_unix_ns(self) -> int:
        """The time now, on the clock as it was set then."""
        return self.unix_ns + time.perf_counter_ns() - self.steady_ns


def begin() -> Began:
    """It begins now."""
    return Began(time.time_ns(), time.perf_counter_ns())


class NotStarted(KeyboardInterrupt):
    """Interrupted before there was a program."""


@dataclass(frozen=True)
class Ended:
    """How the program ended, and what was sampled meanwhile."""

    exit_code: int  # as a shell reports it: 128 + number for a signal
    started_unix_ns: int
    ended_unix_ns: int
    sampled: Sampled
    said: tuple[str, ...] = ()  # problems that were said while it ran


def launch(
    command: Sequence[str],
    settings: Settings,
    say: Say | None = None,
    until_whole: ExitStack | None = None,
) -> Ended:
    """Run ``command`` to its end. Its output, input and exit code are its own.

    ``say`` is told early what stands in the way of a recording. Once the program has ended,
    signals that would end this process wait for ``until_whole``. Raises NotStarted.
    """
    early = EarlyWord(Path(settings.folder), say or _nowhere)
    with held_back():
        telemetry = Telemetry(Path(settings.folder, TELEMETRY_FILE), RHYTHM)
        began = begin()
        try:
            if settings.tool == "torch":
                early.start()
            code = _run(command, settings, telemetry)
        finally:
            early.end()
            sampled = telemetry.stop()
        if until_whole is not None:
            until_whole.enter_context(put_off())
    return Ended(code, began.unix_ns, began.now_unix_ns(), sampled, tuple(early.said))


def _nowhere(text: str) -> None:
    pass


def environment_of(settings: Settings) -> dict[str, str]:
    """The program's environment: ours, the settings, and the hooks in front of its path."""
    environ = dict(os.environ) | settings.environment()
    environ["PYTHONPATH"] = path_with_hooks(environ)
    environ.setdefault("KINETO_LOG_LEVEL", QUIET_KINETO)
    environ.setdefault(TEARDOWN, "0")
    return environ


def _run(command: Sequence[str], settings: Settings, telemetry: Telemetry) -> int:
    try:
        process = start(command, environment_of(settings))
    except OSError as error:
        raise UsageError(
            f"{command[0]}: {error.strerror or error}", hint="check the command"
        ) from None
    except KeyboardInterrupt:
        raise NotStarted from None
    telemetry.host.follow(process.pid)
    code = run_to_its_end(process)
    return 128 - code if code < 0 else code


def command_line(words: Sequence[str], python: str = sys.executable) -> list[str]:
    """``train.py a``, ``-m package a`` or ``torchrun … train.py`` as a command to start.

    A script runs with ``python``. Raises UsageError if there is no such
    script or program.
    """
    if not words:
        raise UsageError("which program?", hint="pinchpoint run train.py [its arguments]")
    first = words[0]
    if first == "-m":
        if len(words) < 2:
            raise UsageError("-m needs the name of a module", hint="pinchpoint run -m package")
        return [python, *words]
    if first.startswith("-"):
        raise UsageError(
            f"{first}: no such option",
            hint="pinchpoint run --help lists them; the program's own come behind its name",
        )
    if first.endswith((".py", ".pyw", ".pyz")) or Path(first, "__main__.py").is_file():
        if not Path(first).exists():
            raise UsageError(f"{first}: no such file", hint="check the path of the script")
        return [python, *words]
    if shutil.which(first):
        return list(words)
    if Path(first).is_file() and not os.access(first, os.X_OK):
        return [python, *words]
    raise UsageError(
        f"{first}: neither a Python script nor a program on the path",
        hint="pinchpoint run train.py, pinchpoint run -m package, pinchpoint run torchrun …",
    )


def label(words: Sequence[str]) -> str:
    """A short name for the run folder: the script's name without its ending."""
    scripts = [w for w in words if w.endswith(".py")]
    name = Path(scripts[0]).stem if scripts else Path(words[-1 if words[0] == "-m" else 0]).name
    if words[0] == "-m" and len(words) > 1:
        name = words[1]
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)[:40] or "run"
