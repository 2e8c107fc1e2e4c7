"""A hostile-proof, read-only view of a SQLite database of a profiler.

The file comes from elsewhere, so it gets no chance to do anything: it is opened immutable and
read-only, an authorizer allows nothing but reading columns of ordinary tables, views, virtual
tables, triggers and generated columns are as good as absent, and rows are bounded by what the file
can hold. Our own statements are the only SQL that runs.
"""

import os
import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from pinchpoint.errors import UnreadableFile
from pinchpoint.trace.arrays import Ints, Mask

NULL = -(2**63)  # stands for NULL while integers travel; no value comes near it
_ROWS_AT_ONCE = 10_000  # a few MB of Python objects, made into columns before the next are read
_LEAST_ROW_BYTES = 2  # a SQLite row is at least a length and a row id
_LONGEST_VALUE_BYTES = 64 * 1024**2  # longest text or blob that is read
_ALLOWED_FUNCTIONS = {"ifnull", "coalesce"}
_BROKEN = (
    "copy it again, or export it again (nsys export --type sqlite REPORT.nsys-rep), or record it"
    " again"
)


@dataclass(frozen=True)
class Column:
    """Whole numbers with their nulls."""

    values: Ints
    missing: Mask

    def filled(self, fill: int) -> Ints:
        """The values with ``fill`` for nulls; the values themselves where there are none."""
        return np.where(self.missing, fill, self.values) if self.missing.any() else self.values


@dataclass(frozen=True)
class Database:
    """Tables of the export that are ordinary tables, and the columns that each has."""

    path: Path
    connection: sqlite3.Connection
    columns: dict[str, tuple[str, ...]]
    bytes: int
    passed_over: tuple[str, ...] = ()  # views and virtual tables: they run what the file says

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table is there with all these columns."""
        return table in self.columns and set(columns) <= set(self.columns[table])

    def integers(self, table: str, wanted: Sequence[str]) -> dict[str, Column]:
        """The wanted columns that exist, in the order of the file; {} if the table is absent."""
        there = [c for c in wanted if c in self.columns.get(table, ())]
        if not there:
            return {}
        exprs = ", ".join(f"ifnull({_quoted(c)}, {NULL})" for c in there)
        with self._guarded():
            cursor = self.connection.execute(f"SELECT {exprs} FROM {_quoted(table)} NOT INDEXED")
            bound = self.bytes // _LEAST_ROW_BYTES
            held = [array("q") for _ in there]
            try:
                while rows := cursor.fetchmany(_ROWS_AT_ONCE):
                    for column, values in zip(held, zip(*rows, strict=True), strict=True):
                        column.extend(values)
                    if len(held[0]) > bound:
                        raise self._unreadable(f"{table} has more rows than the file can hold")
            except (ValueError, TypeError, OverflowError):
                raise self._unreadable(f"{table} holds something else than numbers") from None
        return {
            name: Column(values, values == NULL)
            for name, column in zip(there, held, strict=True)
            for values in (np.frombuffer(column, np.int64),)
        }

    def rows(self, table: str, wanted: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Rows of the wanted columns; none if the table or one of the columns is absent."""
        if not wanted or not self.has(table, *wanted):
            return
        exprs = ", ".join(_quoted(c) for c in wanted)
        left = self.bytes  # each text is in the file once, so all together are no longer
        with self._guarded():
            for row in self.connection.execute(f"SELECT {exprs} FROM {_quoted(table)} NOT INDEXED"):
                left -= _LEAST_ROW_BYTES + sum(len(v) for v in row if isinstance(v, str | bytes))
                if left < 0:
                    raise self._unreadable(f"{table} holds more than the file can hold")
                yield row

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError, MemoryError) as error:
            raise self._unreadable(str(error) or type(error).__name__) from None

    def _unreadable(self, what: str) -> UnreadableFile:
        return UnreadableFile(f"{self.path}: damaged SQLite database ({what})", hint=_BROKEN)


def tables_in(path: Path) -> frozenset[str]:
    """Names of the tables of a SQLite file; none of a file that cannot be opened as one."""
    if not path.is_file():
        return frozenset()
    connection = sqlite3.connect(f"file:{quote(os.fsencode(path))}?mode=ro&immutable=1", uri=True)
    try:
        listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return frozenset(str(name) for (name,) in listed)
    except (sqlite3.Error, UnicodeDecodeError):
        return frozenset()
    finally:
        connection.close()


@contextmanager
def opened(path: Path, shown: Path) -> Iterator[Database]:
    """Open the SQLite file at ``path``; ``shown`` is its name in messages.

    Raises UnreadableFile for a database that another program is writing, that is damaged or cut
    off.
    """
    _refuse_unfinished(path, shown)
    connection = sqlite3.connect(f"file:{quote(os.fsencode(path))}?mode=ro&immutable=1", uri=True)
    try:
        connection.text_factory = _text
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE_BYTES)
        connection.set_authorizer(_authorize)
        columns, passed_over = _columns(connection, shown)
        database = Database(shown, connection, columns, path.stat().st_size, passed_over)
        yield database
    finally:
        connection.close()


def _refuse_unfinished(path: Path, shown: Path) -> None:
    for suffix, what in (("-wal", "a write-ahead log"), ("-journal", "a rollback journal")):
        beside = path.with_name(path.name + suffix)
        if beside.exists() and beside.stat().st_size:
            raise UnreadableFile(
                f"{shown}: {what} lies beside it: another program is writing it, or was stopped",
                hint="let that program finish, or open the database once with sqlite3, then retry",
            )


def _columns(
    connection: sqlite3.Connection, shown: Path
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """The columns of each ordinary table, and the names of the others and of views."""
    try:
        listed = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        ordinary = [
            str(name)
            for kind, name, sql in listed
            if kind == "table" and str(sql).lstrip().upper().startswith("CREATE TABLE")
        ]
        columns = {
            name: tuple(
                str(row[1]) for row in connection.execute(f"PRAGMA table_info({_quoted(name)})")
            )
            for name in ordinary
        }
        others = (str(name) for kind, name, _ in listed if kind in ("table", "view"))
        return columns, tuple(name for name in others if name not in columns)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise UnreadableFile(
            f"{shown}: damaged or cut-off SQLite database ({error})", hint=_BROKEN
        ) from None


def _authorize(
    action: int, first: str | None, second: str | None, schema: str | None, inner: str | None
) -> int:
    """Reading columns and asking for a table's columns is allowed; everything else is not.

    ``inner`` names the view or trigger that makes the access: a recording has none.
    """
    allowed = inner is None and (
        action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
        or (action == sqlite3.SQLITE_PRAGMA and first == "table_info")
        or (action == sqlite3.SQLITE_FUNCTION and second in _ALLOWED_FUNCTIONS)
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
