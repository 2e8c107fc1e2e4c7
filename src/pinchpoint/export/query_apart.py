"""A query of somebody else in a process of its own, which the operating system bounds.

DuckDB's own limit holds for its buffers, not for a scalar: ``repeat('x', 2000000000)`` takes
gigabytes past it, and a statement that computes one value cannot be interrupted. The process gets
the tables and the statement, and gives back the rows. It may use so much memory, so much time, and
not one byte of a file; whatever happens to it, this program goes on, and it ends with this program.
"""

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from types import SimpleNamespace
from typing import Any, cast

from pinchpoint.errors import PinchpointError, UsageError
from pinchpoint.export.database import Limits, duckdb_module, query, tables_of
from pinchpoint.inside.ending import end_with_parent
from pinchpoint.trace import Table, Trace

# Python, NumPy and DuckDB are loaded and the tables handed over before the query's time begins.
_START_S = 30.0
# DuckDB looks at its clock between pieces of work; one piece that takes longer ends with the
# process. On a busy machine it has said within a second that the time is over.
_MORE_S = 1.0
MOST_ANSWER_BYTES = 16 << 20  # what is shown of it has 100,000 characters
_LONGEST_TEXT = 10_000  # characters of one value that are passed on; what is shown is cut to 300
_SMALLER = "aggregate it, or ask for less"

Answer = tuple[list[str], list[tuple[Any, ...]]]


def query_apart(trace: Trace, statement: str, limits: Limits) -> Answer:
    """Column names and rows, whose texts are cut.

    Raises UsageError with DuckDB's words, or with the limit that was reached.
    """
    duckdb_module()
    given = {
        "names": list(trace.names),
        "threads": list(trace.threads),
        "tables": [(t.name, dict(t.columns), dict(t.missing)) for t in tables_of(trace).values()],
        "query": (statement, limits),
    }
    with _process() as process, _ended_after(process, limits.seconds + _START_S) as late:
        assert process.stdin
        assert process.stdout
        with contextlib.suppress(BrokenPipeError):  # it died; what it said tells why
            pickle.dump(given, process.stdin, protocol=5)
            process.stdin.close()
        said = process.stdout.read(MOST_ANSWER_BYTES + 1)
    if len(said) > MOST_ANSWER_BYTES:
        raise UsageError("sql: the answer is too long", hint=_SMALLER)
    return _understood(said, limits, too_late=bool(late))


def _understood(said: bytes, limits: Limits, *, too_late: bool) -> Answer:
    if too_late:
        raise UsageError("sql: the query takes too long", hint="aggregate or filter it")
    try:
        answer = json.loads(said)
    except ValueError:  # the process was ended in the middle
        raise UsageError(
            f"sql: the query needs more than {limits.memory_mb:,} MB or {limits.seconds:g} s",
            hint=_SMALLER,
        ) from None
    if "error" in answer:
        raise UsageError(answer["error"], hint=answer["hint"])
    return answer["columns"], [tuple(row) for row in answer["rows"]]


@contextmanager
def _process() -> Iterator[subprocess.Popen[bytes]]:
    """This module as a program. ``-P``: no module comes from the folder of the recordings."""
    paths = [str(Path(__file__).parents[2]), *filter(None, sys.path)]
    try:
        started = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(os.environ, PYTHONPATH=os.pathsep.join(paths)),
        )
    except OSError as error:
        raise UsageError(
            f"sql: a query needs a process of its own, and {sys.executable} cannot be started: "
            f"{error.strerror}",
            hint="let this user run it",
        ) from None
    with started as process:
        _RUNNING.add(process)
        try:
            yield process
        finally:
            _RUNNING.discard(process)
            process.kill()


_RUNNING: set[subprocess.Popen[bytes]] = set()


def end_queries() -> None:
    """End the queries that run, of whatever thread; each is then refused as one that died."""
    for process in tuple(_RUNNING):
        process.kill()


@contextmanager
def _ended_after(process: subprocess.Popen[bytes], seconds: float) -> Iterator[list[bool]]:
    """Kill the process when its time is over; then the list is not empty."""
    late: list[bool] = []

    def end() -> None:
        late.append(True)
        process.kill()

    timer = Timer(seconds, end)
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()


# ------------------------------------------------------------------------------------------------
# Inside the process.


def main() -> int:
    """Read tables and statement from standard input, write the answer to standard output."""
    end_with_parent(int(sys.argv[1]))
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # it may have been ignored by who started us
    given = pickle.load(sys.stdin.buffer)  # from query_apart, in the program that started this
    tables = {name: Table(name, columns, missing) for name, columns, missing in given["tables"]}
    trace = SimpleNamespace(names=given["names"], threads=given["threads"], **tables)
    statement, limits = given["query"]

    def confine() -> None:
        _confine(limits)

    answer: dict[str, Any]
    try:
        columns, rows = query(cast(Trace, trace), statement, limits, confine)
        answer = {"columns": columns, "rows": [[_short(v) for v in row] for row in rows]}
    except PinchpointError as error:
        answer = {"error": error.message[:_LONGEST_TEXT], "hint": error.hint}
    sys.stdout.write(json.dumps(answer))
    return 0


def _short(value: object) -> object:
    if isinstance(value, bool | int | float | None):
        return value
    return str(value)[:_LONGEST_TEXT]


def _confine(limits: Limits) -> None:
    """Bound memory, time and files from here on, where the system can (POSIX)."""
    try:
        import resource
    except ImportError:
        return
    signal.setitimer(signal.ITIMER_REAL, limits.seconds + _MORE_S)  # ends it, whatever it is at
    wanted = {resource.RLIMIT_CPU: _cpu_seconds(limits), resource.RLIMIT_FSIZE: 0}
    if limits.memory_mb and (used := _address_space_bytes()):
        wanted[resource.RLIMIT_AS] = used + (limits.memory_mb << 20)
    for which, most in wanted.items():
        _, hard = resource.getrlimit(which)
        lowest = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(OSError, ValueError):  # a system that has no such limit
            resource.setrlimit(which, (lowest, lowest))


def _cpu_seconds(limits: Limits) -> int:
    """All cores may work for the whole time; what was used before does not count."""
    used = sum(os.times()[:2])
    return int(used + limits.seconds * (os.cpu_count() or 1)) + 1


def _address_space_bytes() -> int | None:
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    except (OSError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main())
