"""What surrounds every measurement: the lock, the folder, the environment before and after."""

import fcntl
import os
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.bench.folders import BenchSession, start_session, write_atomic, write_json
from pinchpoint.bench.metrics import encode
from pinchpoint.bench.result import RESULT_FILE, BenchResult
from pinchpoint.bench.run import RunOptions
from pinchpoint.bench.run.validity import BUSY_LOAD_RATIO, is_busy
from pinchpoint.bench.summary import SUMMARY_FILE, SessionSummary, summary
from pinchpoint.frozen import dataclass
from pinchpoint.monitor.environment import environment, full_fingerprint
from pinchpoint.monitor.environment.software import git_diff

_ENDS = (signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Measurement:
    """A session in progress."""

    session: BenchSession
    environment: Mapping[str, Any]
    warnings: tuple[str, ...]

    def options(self, options: RunOptions) -> RunOptions:
        """The options, with the identity of this session and its environment."""
        return replace(
            options,
            session_id=self.session.session_id,
            env_sha256=full_fingerprint(self.environment),
        )

    def finish(
        self, result: msgspec.Struct, *, said: SessionSummary | None = None, **facts: Any
    ) -> Path:
        """Write ``result.json``, and its summary, and close the session; returns the file."""
        said = summary(result) if isinstance(result, BenchResult) else said
        if said is not None:
            write_atomic(self.session.folder / SUMMARY_FILE, encode(said))
        path = self.session.folder / RESULT_FILE
        write_atomic(path, encode(result))
        self.session.finish("complete", **facts)
        return path


@contextmanager
def measurement(
    kind: str,
    asked: Mapping[str, Any],
    folder: Path | None,
    *,
    keep_diff: bool = True,
    program: Sequence[str] = (),
) -> Iterator[Measurement]:
    """A new session folder with its environment record, while the machine is ours.

    ``program`` is the command that is measured, whose Python may be another than ours. What is not
    committed in the working directory goes into ``diff.patch`` (``keep_diff``).
    Whatever ends the block early is noted in ``session.json``; a request to terminate is an
    interruption, so that no program under measurement stays behind.
    """
    busy = disturbances()
    with (
        measuring() as others,
        start_session(kind, asked, folder) as session,
        _termination_interrupts(),
    ):
        record = environment(program=program)
        write_json(session.folder / "env.json", record)
        diff = git_diff(Path.cwd()) if keep_diff else None
        if diff:
            write_atomic(session.folder / "diff.patch", diff.encode())
        yield Measurement(session, record, (*busy, *others))


@contextmanager
def _termination_interrupts() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt inside the block; only a main thread can ask."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def disturbances() -> tuple[str, ...]:
    """What goes on here that has nothing to do with the measurement; ask before it starts."""
    load, cpus = os.getloadavg()[0], os.cpu_count()
    if not is_busy(load, cpus):
        return ()
    said = f"load {load:.1f} on {cpus} CPUs, from {BUSY_LOAD_RATIO:g} each on"
    return (f"the machine was busy before the measurement: {said}",)


@contextmanager
def measuring() -> Iterator[tuple[str, ...]]:
    """Hold the machine's measurement lock; yields a warning if another benchmark holds it.

    A hint, not a wall: two benchmarks at once disturb each other, they do not mix their files.
    """
    path = Path(tempfile.gettempdir()) / f"pinchpoint-bench-{os.getuid()}.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        yield (f"cannot tell whether another benchmark is running ({error.strerror})",)
        return
    try:
        yield () if _locked(descriptor) else ("another benchmark measured here at the same time",)
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
