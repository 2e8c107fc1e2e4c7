"""One command in a fresh process group, timed from outside."""

import os
import resource
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pinchpoint.bench.run.swapped import Side
from pinchpoint.errors import UsageError
from pinchpoint.frozen import dataclass
from pinchpoint.inside.ending import ends_with_us
from pinchpoint.interruption import came

_RUNNING: set[int] = set()  # process groups that are waited for, in whichever thread
GRACE_S = 5.0  # between asking a group to end and killing it


@dataclass(frozen=True)
class Finished:
    """How a process ended and what it used."""

    exit_code: int  # negative: ended by this signal
    wall_s: float
    timed_out: bool
    started_unix_ns: int
    ended_unix_ns: int
    user_s: float
    system_s: float
    peak_rss_bytes: int | None  # None: below this process's own peak, see run_command


def run_command(
    command: Sequence[str],
    *,
    folder: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    side: Side | None = None,
) -> Finished:
    """Run to the end; output goes to ``stdout.log`` and ``stderr.log`` in ``folder``.

    With a ``side`` it shares the CPUs with another program.

    The process group is ended when the command ends, at the time-out, or when this call is
    interrupted; on Linux the command gets SIGTERM if this process is killed. UsageError if the
    command cannot be started.

    Linux counts the peak memory of a new process from its parent's peak on, so a peak that is not
    above ours says nothing.
    """
    with (folder / "stdout.log").open("wb") as out, (folder / "stderr.log").open("wb") as err:
        started_ns, begin = time.time_ns(), time.perf_counter()
        try:
            process = subprocess.Popen(
                list(command),
                cwd=cwd,
                env=None if env is None else dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=ends_with_us(),
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"{command[0]}: {why}", hint="check the command") from None
        if side is not None:
            side.begin(process.pid)
        try:
            return _await(process, timeout_s, started_ns, begin)
        finally:
            if side is not None:
                side.ended = True


def _await(
    process: "subprocess.Popen[bytes]", timeout_s: float | None, started_ns: int, begin: float
) -> Finished:
    late = threading.Event()
    _RUNNING.add(process.pid)
    timer = threading.Timer(timeout_s, _end_late, (process.pid, late)) if timeout_s else None
    if timer:
        timer.daemon = True
        timer.start()
    try:
        _until_ended(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        if timer:
            timer.cancel()
        end_group(process.pid)
        _RUNNING.discard(process.pid)
        if process.returncode is None:  # this call was interrupted
            process.wait()
    return Finished(
        exit_code=process.returncode,
        wall_s=wall_s,
        timed_out=late.is_set(),
        started_unix_ns=started_ns,
        ended_unix_ns=time.time_ns(),
        user_s=usage.ru_utime,
        system_s=usage.ru_stime,
        peak_rss_bytes=_own_peak_bytes(usage.ru_maxrss),
    )


def _until_ended(pid: int) -> None:
    """Wait without missing a Ctrl-C. Raises KeyboardInterrupt for one that Python dropped.

    A signal that comes right before the system is asked to wait is heard when that is over, and
    one that comes in a destructor or an import is printed and ignored.
    """
    try:
        ended = os.pidfd_open(pid)
    except (AttributeError, OSError):  # no Linux from 5.3 on
        return
    try:
        waits = select.poll()
        waits.register(ended, select.POLLIN)
        while not waits.poll(LOOK_EVERY_MS):
            if came() and threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt
    finally:
        os.close(ended)


LOOK_EVERY_MS = 500  # so late a Ctrl-C is heard at most


def _own_peak_bytes(peak_kib: int) -> int | None:
    ours_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak_kib * 1024 if peak_kib > ours_kib else None


def _end_late(group: int, late: threading.Event) -> None:
    late.set()
    _signal(group, signal.SIGTERM)
    time.sleep(GRACE_S)
    _signal(group, signal.SIGKILL)


def end_running() -> None:
    """Kill every program that a thread of this process waits for."""
    for group in tuple(_RUNNING):
        end_group(group)


def end_group(group: int) -> None:
    """Kill what is left of a process group that we started."""
    _signal(group, signal.SIGKILL)


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def tail(path: Path, lines: int = 5, limit: int = 4096) -> str:
    """The last lines of a log, for an error message."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - limit))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.strip().splitlines()[-lines:])
