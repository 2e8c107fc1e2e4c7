"""Session folders: one a measurement, never shared, readable even after a kill.

    session.json   what was asked, by which process, and its status
    env.json       the environment record
    runs/000-A/    metrics.json, steps.f64, stdout.log, stderr.log, telemetry.csv
    result.json    the verdict or summary

Files are written beside their place and moved in. A session whose process is gone while its
status says ``running`` was cut; readers say so.
"""

import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from pinchpoint.errors import UnreadableFile, UsageError
from pinchpoint.frozen import dataclass
from pinchpoint.replacing import replacing
from pinchpoint.run_folder.layout import make_home

SESSION_SCHEMA = "bench.session/1"
SESSION_FILE = "session.json"
DEFAULT_PARENT = Path("pinchpoint-bench")
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old one or the whole new one.

    Raises UsageError if the place cannot be written.
    """
    try:
        with replacing(path, lasting=True) as beside:
            beside.write_bytes(content)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written ({error.strerror or error})",
            hint="free some space, or name a folder you may write to",
        ) from None


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically; NaN and infinity are an error, not a token no one can read."""
    write_atomic(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def new_id() -> str:
    """A sortable identifier: 48 bits of time and 80 random bits, as ULIDs have them."""
    number = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    return "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))


def utc_now() -> str:
    """Now, as text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class BenchSession:
    """A folder that this process owns; as a context, it notes how a failure ended it."""

    folder: Path
    session_id: str
    about: Mapping[str, Any]

    def __enter__(self) -> "BenchSession":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if error is not None:
            status = "cut" if isinstance(error, KeyboardInterrupt) else "failed"
            error.add_note(f"{self.folder} holds what was measured until then")
            self.finish(status, why=str(error) or type(error).__name__)

    def finish(self, status: str = "complete", **facts: Any) -> None:
        """Say how it ended."""
        self._write(status, ended_utc=utc_now(), **facts)

    def below(self, name: str) -> "BenchSession":
        """A part of this session with a folder and runs of its own."""
        folder = self.folder / name
        (folder / "runs").mkdir(parents=True)
        return BenchSession(folder, self.session_id, self.about)

    def _write(self, status: str, **facts: Any) -> None:
        write_json(self.folder / SESSION_FILE, dict(self.about) | {"status": status} | facts)


def must_be_free(folder: Path) -> None:
    """UsageError if the folder holds anything already; one that is not there is free."""
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(
            f"{folder}: the folder is not empty", hint="name a new one; results are not mixed"
        )


def start_session(kind: str, asked: Mapping[str, Any], folder: Path | None = None) -> BenchSession:
    """A new folder for one measurement; UsageError if ``folder`` holds anything already."""
    where = folder or DEFAULT_PARENT / f"{kind}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{_token()}"
    try:
        if folder is None:
            make_home(where.parent)
        where.mkdir(parents=True, exist_ok=True)
        must_be_free(where)
        (where / "runs").mkdir()  # two sessions cannot both succeed here
    except OSError as error:
        raise UsageError(
            f"{where}: {error.strerror or error}", hint="name another folder"
        ) from None
    session_id = new_id()
    about = {
        "schema": SESSION_SCHEMA,
        "kind": kind,
        "session_id": session_id,
        "started_utc": utc_now(),
        "pid": os.getpid(),
        "process_started": _started(os.getpid()),
        "asked": dict(asked),
    }
    session = BenchSession(where, session_id, about)
    try:
        session._write("running")
    except UsageError:  # no room: the folder is free again
        (where / "runs").rmdir()
        raise
    return session


def session_state(folder: Path) -> dict[str, Any]:
    """The session file of a folder; status ``cut`` if its process died before it was done."""
    path = folder / SESSION_FILE
    try:
        state = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UnreadableFile(f"{folder}: no {SESSION_FILE}", hint="not a folder of bench") from None
    except (OSError, ValueError, RecursionError):
        state = None
    if not isinstance(state, dict) or state.get("schema") != SESSION_SCHEMA:
        return {"status": "cut", "why": f"{SESSION_FILE} was not written to the end"}
    if state.get("status") == "running" and not _alive(state):
        return state | {"status": "cut", "why": "the process ended before the measurement did"}
    return state


def _alive(state: Mapping[str, Any]) -> bool:
    pid = state.get("pid")
    return (
        isinstance(pid, int)
        and _started(pid) is not None
        and (_started(pid) == state.get("process_started"))
    )


def _started(pid: int) -> float | None:
    """When a process began, to tell it from a later one with the same number."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except (psutil.Error, OSError):
        return None


def _token() -> str:
    return os.urandom(3).hex()
