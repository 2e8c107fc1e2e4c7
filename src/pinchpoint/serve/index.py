"""What is known of the recordings below a folder or bucket: one SQLite file in the user's cache.

Nothing is written beside the recordings. The file can be deleted at any time: then they are read
again. A summary counts as long as its recording has the same size and time of change.
"""

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from pinchpoint.frozen import dataclass
from pinchpoint.json_text import decoded, encoded, said
from pinchpoint.serve.jobs import JobFacts
from pinchpoint.serve.listing import ListedRecording
from pinchpoint.serve.summary import Summary

VERSION = 2  # of the tables; others are made anew
_WAIT_S = 5.0  # for another process that writes
_TABLES = {  # as SQLite keeps the words that made them
    "summaries": """CREATE TABLE summaries (
    name TEXT PRIMARY KEY, modified_ns INTEGER, bytes INTEGER, summary BLOB
) WITHOUT ROWID""",
    "jobs": """CREATE TABLE jobs (
    name TEXT PRIMARY KEY, state INTEGER, facts BLOB
) WITHOUT ROWID""",
}


def index_file(root: Path | str) -> Path:
    """Where the index of a folder or URL is kept: below ``XDG_CACHE_HOME``, else ``~/.cache``."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    cache = Path(chosen) if chosen else Path.home() / ".cache"
    place = root if isinstance(root, str) else str(root.resolve())
    digest = hashlib.sha256(place.encode("utf-8", "replace")).hexdigest()[:16]
    return cache / "pinchpoint" / f"runs-{digest}.sqlite"


@dataclass(frozen=True)
class Index:
    """The index; with no file, or one that cannot be written, it remembers nothing."""

    file: Path | None

    def all(self) -> dict[str, tuple[int, int | None, Summary]]:
        """Time of change, size and summary by name."""
        found = {}
        with self._open() as database:
            rows = database.execute("SELECT * FROM summaries") if database else ()
            for name, modified_ns, size, text in rows:
                if (summary := _decoded(text)) is not None:
                    found[os.fsdecode(name)] = (modified_ns, size, summary)
        return found

    def put(self, recording: ListedRecording, summary: Summary) -> None:
        """Remember the summary of a recording as it is now."""
        row = (_key(recording.name), recording.modified_ns, recording.bytes)
        with self._open() as database:
            if database is not None:
                text = encoded(summary)
                database.execute("REPLACE INTO summaries VALUES (?, ?, ?, ?)", (*row, text))
                database.commit()

    def jobs(self) -> dict[str, tuple[int, JobFacts]]:
        """What is known of run folders, with what tells whether one has changed, by name."""
        found = {}
        with self._open() as database:
            rows = database.execute("SELECT * FROM jobs") if database else ()
            for name, state, text in rows:
                with suppress(msgspec.MsgspecError):  # of another version: it is read again
                    facts = decoded(text, JobFacts)
                    called = os.fsdecode(name)
                    found[called] = (state, msgspec.structs.replace(facts, name=called))
        return found

    def put_jobs(self, jobs: Iterable[tuple[int, JobFacts]], gone: Iterable[str] = ()) -> None:
        """Remember run folders as they are now, and forget those that are gone."""
        with self._open() as database:
            if database is not None:
                rows = [(_key(facts.name), state, encoded(facts)) for state, facts in jobs]
                database.executemany("REPLACE INTO jobs VALUES (?, ?, ?)", rows)
                left = [(_key(name),) for name in gone]
                database.executemany("DELETE FROM jobs WHERE name = ?", left)
                database.commit()

    @contextmanager
    def _open(self) -> "Iterator[sqlite3.Connection | None]":
        database = None if self.file is None else _connected(self.file)
        try:
            yield database
        except sqlite3.Error:  # a full disk, or no database: then it is read again next time
            pass
        finally:
            if database is not None:
                database.close()


def _key(name: str) -> str | bytes:
    """A name as the table has it: one that is no valid Unicode as the bytes that it is."""
    return name if said(name) == name else os.fsencode(name)


def _connected(file: Path) -> sqlite3.Connection | None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(file, timeout=_WAIT_S)
        if not _is_ours(database):
            made = ";".join(f"DROP TABLE IF EXISTS {name};{sql}" for name, sql in _TABLES.items())
            database.executescript(f"BEGIN IMMEDIATE;{made};PRAGMA user_version={VERSION};COMMIT")
        return database
    except (OSError, sqlite3.Error):
        return None


def _is_ours(database: sqlite3.Connection) -> bool:
    """Whether it has the tables as they are made here, and not what became of them since."""
    version = database.execute("PRAGMA user_version").fetchone()[0]
    there = dict(database.execute("SELECT name, sql FROM sqlite_master"))
    return version == VERSION and all(there.get(name) == sql for name, sql in _TABLES.items())


def _decoded(text: bytes) -> Summary | None:
    """None for what another version wrote: the recording is read again."""
    try:
        return decoded(text, Summary)
    except msgspec.MsgspecError:
        return None


def current(
    recording: ListedRecording, known: dict[str, tuple[int, int | None, Summary]]
) -> Summary | None:
    """The summary of a recording that has not changed since; None if it has to be read."""
    modified_ns, size, summary = known.get(recording.name, (None, None, None))
    same = modified_ns == recording.modified_ns and size == recording.bytes
    return summary if same else None
