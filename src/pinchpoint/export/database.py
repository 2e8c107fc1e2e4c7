"""The tables of a trace as DuckDB tables: for SQL, and for Parquet files.

Text takes the place of positions in the pool of names, and words that of kinds. ``row`` is the
position that ``parent``, ``api_call`` and ``host_op`` refer to.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pinchpoint.errors import MissingExtra, UsageError, install_hint
from pinchpoint.frozen import dataclass
from pinchpoint.json_text import said
from pinchpoint.replacing import replacing
from pinchpoint.trace import TABLES, Table, Trace, kinds

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Limits:
    """What a query of somebody else may use."""

    seconds: float
    memory_mb: int | None  # None: DuckDB's own limit, four fifths of what the machine has
    rows: int  # one more is fetched, so that the reader can tell that there are more


_AGAIN_S = 0.05
_ROOM_BYTES = 512 << 20  # for a query, beside twice what the tables take
_THREAD_BYTES = 32 << 20  # of addresses that each thread of DuckDB may set aside
_FIRST_ROWS = 2048  # come within that room
_ANSWER_BYTES = 2 << 30  # a million rows as Python objects take about half
_LESS = "aggregate it, or ask for less; pinchpoint export --to parquet, for a DuckDB of your own"
_ROOM = "free space, or name another folder"
_LOCKED = (
    "temp_directory = ''",  # what does not fit in memory fails, and is not written to a disk
    "python_enable_replacements = false",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "enable_external_access = false",
    "lock_configuration = true",
)


def tables_of(trace: Trace) -> dict[str, Table]:
    """The tables that the trace has, empty ones included."""
    found = {name: getattr(trace, name, None) for name in TABLES}
    return {name: rows for name, rows in found.items() if rows is not None}


def _fill(connection: "DuckDBPyConnection", trace: Trace) -> None:
    _store_names(connection, trace)
    threads = [(i, t.process, t.thread, t.label) for i, t in enumerate(trace.threads)]
    connection.execute(
        "CREATE TABLE threads (thread INTEGER, process VARCHAR, id VARCHAR, label VARCHAR)"
    )
    if threads:
        connection.executemany("INSERT INTO threads VALUES (?, ?, ?, ?)", threads)
    for name, rows in tables_of(trace).items():
        _store(connection, name, _columns(rows), ", ".join(_selected(rows)), _joins(rows))


def query(
    trace: Trace,
    statement: str,
    limits: Limits | None = None,
    confine: Callable[[], None] | None = None,
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows of a query; UsageError with DuckDB's words if it is wrong.

    ``confine`` is called when the tables are there, right before the statement runs.
    """
    return _asked(lambda connection: _fill(connection, trace), statement, limits, confine)


def query_columns(
    tables: Mapping[str, Mapping[str, Sequence[Any]]], statement: str, limits: Limits
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The same of tables that are given as columns of plain values; None is NULL."""

    def fill(connection: "DuckDBPyConnection") -> None:
        for name, columns in tables.items():
            kinds_of = ", ".join(f'"{column}" {_kind(v)}' for column, v in columns.items())
            connection.execute(f"CREATE TABLE {name} ({kinds_of})")
            connection.register("given", {n: _array(v) for n, v in columns.items()})
            connection.execute(f"INSERT INTO {name} SELECT * FROM given")
            connection.unregister("given")

    return _asked(fill, statement, limits, None)


def _kind(values: Sequence[Any]) -> str:
    """The type of a column, by its first value that is known."""
    known = next((value for value in values if value is not None), "")
    return {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE"}.get(type(known), "VARCHAR")


def _array(values: Sequence[Any]) -> Any:
    """Masked where nothing is known; texts as objects, in which None is NULL."""
    known = next((value for value in values if value is not None), "")
    if isinstance(known, str):
        texts = (value if value is None else said(value) for value in values)
        return np.array([*texts, None], object)[:-1]
    absent = [value is None for value in values]
    filled = [type(known)(0) if value is None else value for value in values]
    return np.ma.masked_array(np.array(filled, type(known)), absent)


def _asked(
    fill: "Callable[[DuckDBPyConnection], None]",
    statement: str,
    limits: Limits | None,
    confine: Callable[[], None] | None,
) -> tuple[list[str], list[tuple[Any, ...]]]:
    duckdb = duckdb_module()
    connection = duckdb.connect(":memory:")
    seconds = limits.seconds if limits else None
    try:
        return interruptible(
            connection, lambda: _answer(connection, fill, statement, limits, confine), seconds
        )
    except (MemoryError, duckdb.OutOfMemoryException):
        raise UsageError("sql: out of memory: the query needs too much", hint=_LESS) from None
    except TimeoutError:
        raise UsageError("sql: the query takes too long", hint="aggregate or filter it") from None
    except duckdb.Error as error:
        text = " ".join(str(error).split())
        raise UsageError(f"sql: {text}", hint="tables: docs/reference/tables.md") from None
    finally:
        connection.close()


def interruptible(
    connection: "DuckDBPyConnection", work: Callable[[], Answer], seconds: float | None = None
) -> Answer:
    """What ``work`` gives, which uses the connection; TimeoutError if it takes too long.

    In the main thread DuckDB passes over Ctrl-C or makes a RuntimeError of it, so it works beside.
    """
    with ThreadPoolExecutor(1) as beside:
        answer = beside.submit(work)
        try:
            return answer.result(seconds)
        except BaseException:
            while not answer.done():  # between two statements there is nothing to interrupt
                connection.interrupt()
                wait((answer,), timeout=_AGAIN_S)
            raise


def _answer(
    connection: "DuckDBPyConnection",
    fill: "Callable[[DuckDBPyConnection], None]",
    statement: str,
    limits: Limits | None,
    confine: Callable[[], None] | None,
) -> tuple[list[str], list[tuple[Any, ...]]]:
    fill(connection)
    _lock(connection, limits)
    if confine is not None:
        confine()
    bounded: AbstractContextManager[Callable[[], None]] = nullcontext(_nothing)
    if limits and confine is None:
        bounded = _bounded()
    with bounded as allow_many:
        result = connection.execute(statement)
        if result is None:
            raise UsageError("sql: no statement", hint='"SELECT count(*) FROM device_ops"')
        header = [column[0] for column in result.description or ()]
        if limits is None:
            return header, result.fetchall()
        rows = result.fetchmany(min(_FIRST_ROWS, limits.rows + 1))
        allow_many()
        return header, rows + result.fetchmany(limits.rows + 1 - len(rows))


def _nothing() -> None:
    """Where there is no limit, there is none to lift."""


@contextmanager
def _bounded() -> Iterator[Callable[[], None]]:
    """Let this process grow by so much and no more, where the system can tell (Linux).

    DuckDB's own limit holds for its buffers, not for a scalar such as ``repeat('x', 1000000000)``.
    What is yielded allows the rest of a long answer, once its first rows came.
    """
    used = _pages()
    if used is None:
        yield _nothing
        return
    import resource

    usual = resource.getrlimit(resource.RLIMIT_AS)
    room = _ROOM_BYTES + 2 * used[1] + _THREAD_BYTES * (os.cpu_count() or 1)

    def allow(more: int) -> None:
        most = used[0] + room + more
        if usual[0] == resource.RLIM_INFINITY or most < usual[0]:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_AS, (most, usual[1]))

    allow(0)
    try:
        yield lambda: allow(_ANSWER_BYTES)
    finally:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, usual)


def _pages() -> tuple[int, int] | None:
    """Bytes of addresses and of memory that this process has."""
    try:
        words = Path("/proc/self/statm").read_text("ascii").split()
    except (OSError, ValueError):
        return None
    size = os.sysconf("SC_PAGE_SIZE")
    return int(words[0]) * size, int(words[1]) * size


def _lock(connection: "DuckDBPyConnection", limits: Limits | None) -> None:
    """From here on a statement reaches no file, network, extension or variable of this program."""
    if limits and limits.memory_mb:
        connection.execute(f"SET memory_limit = '{limits.memory_mb}MB'")
    for setting in _LOCKED:
        connection.execute(f"SET {setting}")


def write_parquet(trace: Trace, folder: Path) -> Iterator[Path]:
    """One file a table that has rows, in an existing folder; each file as it is done.

    UsageError where the folder does not take them.
    """
    duckdb = duckdb_module()
    connection = duckdb.connect(":memory:")
    _store_names(connection, trace)
    for name, rows in tables_of(trace).items():
        if not len(rows):
            continue
        _store(connection, name, _columns(rows), ", ".join(_selected(rows)), _joins(rows))
        file = folder / f"{name}.parquet"
        try:
            copy_to_parquet(connection, name, file)
        except (duckdb.IOException, OSError) as error:
            raise UsageError(f"{file}: cannot be written ({why(error)})", hint=_ROOM) from None
        yield file


def copy_to_parquet(connection: "DuckDBPyConnection", rows: str, file: Path) -> None:
    """Write a table or a query to a file. Raises IOException of DuckDB, OSError or UsageError."""
    if said(str(file)) != str(file):
        raise UsageError(f"{file}: DuckDB writes to names in UTF-8 only", hint="name another place")
    with replacing(file) as beside:
        target = str(beside).replace("'", "''")
        how = "FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false, "
        how += "KV_METADATA {written_by: 'pinchpoint'}"  # so that it is known for ours
        copy = f"COPY {rows} TO '{target}' ({how})"
        interruptible(connection, lambda: connection.execute(copy))


def why(error: Exception) -> str:
    """The operating system's words in an error, which come last in those of DuckDB."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    reasons = (
        "No space left on device",
        "Permission denied",
        "Read-only file system",
        "File too large",
        "Disk quota exceeded",
    )
    text = str(error)
    return next((reason for reason in reasons if reason in text), " ".join(text.split())[:200])


def _store_names(connection: "DuckDBPyConnection", trace: Trace) -> None:
    text = [said(name) for name in trace.names]
    names = np.array([*text, ""], object)[:-1]  # an empty list would become numbers
    _store(connection, "names", {"id": np.arange(len(names)), "text": names}, "id, text")


def duckdb_module() -> Any:
    """DuckDB; MissingExtra without it."""
    try:
        import duckdb
    except ImportError:
        raise MissingExtra(
            "SQL and Parquet need DuckDB", hint=install_hint("sql", "duckdb")
        ) from None
    return duckdb


def _columns(rows: Table) -> dict[str, Any]:
    """The columns and their masks of nulls, as DuckDB scans them."""
    columns: dict[str, Any] = {"row": np.arange(len(rows))}
    for name, values in rows.columns.items():
        columns[name] = np.ascontiguousarray(values)
        if name in rows.missing:
            columns[f"{name}__null"] = np.ascontiguousarray(rows.missing[name])
    return columns


def _selected(rows: Table) -> Iterator[str]:
    yield "t.row"
    for name, column in TABLES[rows.name].items():
        value = f't."{name}"'
        if column.refers_to == "names":
            value = f'"n_{name}".text'
        elif (words := getattr(kinds, column.meaning.split()[0], None)) is not None:
            cases = " ".join(f"WHEN {int(kind)} THEN '{kind.name.lower()}'" for kind in words)
            value = f"CASE {value} {cases} END"
        if name in rows.missing:
            value = f'CASE WHEN t."{name}__null" THEN NULL ELSE {value} END'
        yield f'{value} AS "{name}"'


def _joins(rows: Table) -> str:
    named = [n for n, column in TABLES[rows.name].items() if column.refers_to == "names"]
    return " ".join(f'LEFT JOIN names "n_{n}" ON "n_{n}".id = t."{n}"' for n in named)


def _store(
    connection: "DuckDBPyConnection",
    name: str,
    columns: dict[str, Any],
    chosen: str,
    joins: str = "",
) -> None:
    connection.register("given", columns)
    order = "t.row" if "row" in columns else "t.id"
    connection.execute(
        f"CREATE TABLE {name} AS SELECT {chosen} FROM given t {joins} ORDER BY {order}"
    )
    connection.unregister("given")
