"""The run folders below a folder, or below an address in an object store."""

import zlib
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pinchpoint.errors import PinchpointError, UnreadableFile, UsageError
from pinchpoint.importers.files.remote import file_system, is_url
from pinchpoint.replacing import scratch_folder
from pinchpoint.run_folder.layout import ENVIRONMENT_FILE, METRICS_FILE, PROCESSES, RUN_FILE
from pinchpoint.serve.listing import run_folders

MOST_RUNS = 200_000  # of one fleet: listed in seconds; more belong into folders of their own
MOST_COPIED_BYTES = 8 << 30  # of one run; the windows that a run keeps are bounded far below it
_DOCUMENTS = (RUN_FILE, METRICS_FILE, ENVIRONMENT_FILE)
_CHANGES = ("ETag", "etag", "LastModified", "last_modified", "mtime", "updated", "created", "size")


@dataclass(frozen=True)
class RunPlace:
    """A run folder; ``name`` is relative to the root, and ``state`` changes when it does."""

    name: str
    state: int
    place: str
    files: tuple[str, ...] = ()  # of one in an object store, as the store calls them
    bytes: int = 0  # of those, as the store says


def run_places(root: str) -> tuple[RunPlace, ...]:
    """All run folders below a folder or URL, by name. UsageError where there is none."""
    found = tuple(_remote(root) if is_url(root) else _local(Path(root)))
    if not found:
        raise UsageError(
            f"{root}: no run folders",
            hint="pinchpoint run -o FOLDER/NAME, or pp.watch(out='FOLDER/NAME'), leaves one there",
        )
    if len(found) > MOST_RUNS:
        raise UsageError(f"{root}: more than {MOST_RUNS:,} runs", hint="name a part of it")
    return found


@contextmanager
def documents_of(run: RunPlace) -> Iterator[Path]:
    """A folder with the documents of a run; its recordings may be absent."""
    with _here(run, _is_document) as folder:
        yield folder


@contextmanager
def whole(run: RunPlace) -> Iterator[Path]:
    """The run folder with its recordings. UnreadableFile for one that is too large to copy."""
    if run.bytes > MOST_COPIED_BYTES:
        raise UnreadableFile(
            f"{run.name or run.place}: {run.bytes >> 30:,} GB, more than is copied at once",
            hint="copy it to a disk by the store's own tool, and give that folder",
        )
    with _here(run, lambda _: True) as folder:
        yield folder


@contextmanager
def _here(run: RunPlace, wanted: Any) -> Iterator[Path]:
    if not is_url(run.place):
        yield Path(run.place)
        return
    with _copied(run, wanted) as folder:
        yield folder


def _local(root: Path) -> Iterator[RunPlace]:
    if not root.is_dir():
        raise UsageError(f"{root}: no such folder", hint="pinchpoint fleet FOLDER")
    for folder in run_folders(root, MOST_RUNS + 1):
        name = folder.relative_to(root).as_posix() if folder != root else ""
        try:
            yield RunPlace(name, folder.stat().st_mtime_ns, str(folder))
        except OSError:  # it went away
            continue


def _remote(url: str) -> Iterator[RunPlace]:
    system, path = file_system(url)
    root = path.rstrip("/")
    try:
        found: dict[str, dict[str, Any]] = system.find(path, detail=True)
    except Exception as error:  # each store has errors of its own
        raise UnreadableFile(f"{url}: {error}", hint="check the URL and the credentials") from None
    names = sorted(found)
    for at in names:
        folder, _, last = at.rpartition("/")
        if last != RUN_FILE:
            continue
        # "0" is the character after "/": names between the two are those inside.
        inside = tuple(names[bisect_left(names, f"{folder}/") : bisect_left(names, f"{folder}0")])
        name = folder.removeprefix(root).strip("/")
        size = sum(int(found[file].get("size") or 0) for file in inside)
        yield RunPlace(name, _state(found, folder), url, inside, size)


def _state(found: dict[str, dict[str, Any]], folder: str) -> int:
    """What the store says of the documents, whichever of its words for a change it uses."""
    said = [(n, [str(found.get(f"{folder}/{n}", {}).get(w)) for w in _CHANGES]) for n in _DOCUMENTS]
    return zlib.crc32(repr(said).encode())


def _is_document(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return name in _DOCUMENTS or (len(parts) > 1 and parts[0] == PROCESSES and "rank0" in parts[1])


@contextmanager
def _copied(run: RunPlace, wanted: Any) -> Iterator[Path]:
    system, _ = file_system(run.place)
    folder = min((f.rpartition("/")[0] for f in run.files), key=len)
    with scratch_folder() as scratch:
        copy = scratch / "run"
        copy.mkdir()
        try:
            for file in run.files:
                name = file.removeprefix(f"{folder}/")
                inside = not name.startswith("/") and ".." not in PurePosixPath(name).parts
                if wanted(name) and inside:
                    target = copy / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    system.get_file(file, str(target))
            yield copy
        except PinchpointError:
            raise
        except Exception as error:  # each store has errors of its own
            raise UnreadableFile(f"{run.name}: {error}", hint="check the credentials") from None
