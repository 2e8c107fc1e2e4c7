"""The recordings below a folder, newest first."""

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from pinchpoint.errors import PinchpointError
from pinchpoint.frozen import dataclass
from pinchpoint.importers.open import format_of
from pinchpoint.importers.run_folder import FORMAT as RUN
from pinchpoint.run_folder.documents import RunDocument, read
from pinchpoint.run_folder.layout import RUN_FILE

MOST_ENTRIES = 50_000  # of the file system that are looked at
MOST_RECORDINGS = 1000
DEEPEST = 8
LATEST_NS = 1 << 63  # the year 2262: beyond it a file says nothing about when it was recorded
_SUFFIXES = (
    *(".json", ".gz", ".trace", ".pickle", ".pkl", ".pb", ".csv", ".txt", ".log", ".prom"),
    *(".sqlite", ".nsys-rep", ".ncu-rep"),
)


@dataclass(frozen=True)
class ListedRecording:
    """One line of the list. ``name`` is relative to the root, and empty if that is the run."""

    name: str
    format: str
    modified_ns: int
    bytes: int | None  # of a file
    recorded_ns: int | None = None  # when a run began, where it says so

    @property
    def when_ns(self) -> int:
        """When it was recorded, as far as is known: a copy has a file time of its own."""
        return self.modified_ns if self.recorded_ns is None else self.recorded_ns

    @property
    def is_run(self) -> bool:
        """Whether it is a run folder."""
        return self.format == RUN


@dataclass(frozen=True)
class Listing:
    """What was found; ``complete`` is False where a bound ended the search."""

    recordings: tuple[ListedRecording, ...]
    complete: bool


Known = Mapping[str, tuple[int, int | None]]  # time of change and size by name


def recordings(root: Path, known: Known | None = None) -> Listing:
    """Everything below ``root`` that looks like a recording; run folders count as one.

    Hidden names and symbolic links are left out. What is ``known`` and has not changed since is
    not opened to see what it is.
    """
    found: list[ListedRecording] = []
    complete = True
    if (root / RUN_FILE).is_file() and (itself := _recording(root, root, {})):
        found.append(itself)
    for place in _walk(root):
        if place is None or len(found) == MOST_RECORDINGS:
            complete = False
            break
        if recording := _recording(root, place, known or {}):
            found.append(recording)
    found.sort(key=lambda r: (-r.when_ns, r.name))
    return Listing(tuple(found), complete)


def run_folders(root: Path, most: int) -> Iterator[Path]:
    """The run folders below ``root``, itself included, in order of names; ``most`` of them.

    Hidden names and links are left out, and nothing inside a run folder is looked at.
    """
    waiting = [root]
    while waiting and most > 0:
        folder = waiting.pop()
        if (folder / RUN_FILE).is_file():
            most -= 1
            yield folder
            continue
        inside = (e for e in _entries(folder) if not e.name.startswith(".") and not e.is_symlink())
        waiting += reversed([folder / entry.name for entry in inside if entry.is_dir()])


def inside_run(root: Path, run: Path) -> tuple[ListedRecording, ...]:
    """The recordings that a run folder keeps, in order of their names."""
    inside = (_recording(root, place, {}) for place in _walk(run) if place is not None)
    return tuple(sorted((r for r in inside if r), key=lambda r: r.name))


def _walk(root: Path) -> Iterator[Path | None]:
    """Files by suffix and run folders, breadth first; None at the end of what is looked at."""
    waiting, left = [(root, 0)], MOST_ENTRIES
    while waiting:
        folder, depth = waiting.pop(0)
        for entry in _entries(folder):
            left -= 1
            if left < 0:
                yield None
                return
            path = folder / entry.name
            if entry.name.startswith(".") or entry.is_symlink():
                continue
            if not entry.is_dir():
                if entry.name.lower().endswith(_SUFFIXES):
                    yield path
            elif (path / RUN_FILE).is_file():
                yield path
            elif depth < DEEPEST:
                waiting.append((path, depth + 1))


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def listed_as(name: str, path: Path) -> ListedRecording | None:
    """The line of one recording; None where it is none, or is gone."""
    try:
        facts = path.stat()
    except OSError:
        return None
    format_ = _format(path, facts.st_mtime_ns, facts.st_size)
    if format_ is None:
        return None
    if format_ != RUN:
        return ListedRecording(name, format_, facts.st_mtime_ns, facts.st_size)
    began = _began(path, facts.st_mtime_ns)
    return ListedRecording(name, format_, facts.st_mtime_ns, None, began)


def _recording(root: Path, path: Path, known: Known) -> ListedRecording | None:
    name = "" if path == root else path.relative_to(root).as_posix()
    if name in known and path.is_file():
        facts = path.stat()
        if known[name] == (facts.st_mtime_ns, facts.st_size):
            return ListedRecording(name, "", facts.st_mtime_ns, facts.st_size)
    return listed_as(name, path)


@lru_cache(maxsize=4 * MOST_RECORDINGS)
def _began(run: Path, modified_ns: int) -> int | None:
    try:
        began = read(run / RUN_FILE, RunDocument).document.started_unix_ns
    except PinchpointError:
        return None
    return began if began is not None and 0 < began < LATEST_NS else None


@lru_cache(maxsize=4 * MOST_RECORDINGS)
def _format(path: Path, modified_ns: int, size: int) -> str | None:
    """Remembered while the file does not change: the list is asked for again and again."""
    return format_of(path)
