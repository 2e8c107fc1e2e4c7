"""What a browser may name: files and folders below one root, and nothing else.

A name that leads out of the root is refused, whatever leads there: ``..``, an absolute path, a
symbolic link, or a link inside a run folder whose files a reader would follow.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from pinchpoint.errors import UnreadableFile
from pinchpoint.frozen import dataclass
from pinchpoint.run_folder.layout import RUN_FILE

MOST_FILES = 2000  # of one run folder that are looked at


@dataclass(frozen=True)
class Place:
    """A file or folder below the root; ``name`` is how the browser calls it."""

    name: str
    path: Path


def place(root: Path, name: str) -> Place:
    """What a name means; UnreadableFile if that is nothing, or lies outside ``root``.

    ``root`` must be resolved. The empty name is the root itself, where that is a run folder.
    """
    if not name and (root / RUN_FILE).is_file():
        _all_inside(root, root)
        return Place(name, root)
    parts = name.split("/")
    if not name or "\\" in name or "\0" in name or any(p in ("", ".", "..") for p in parts):
        raise UnreadableFile(f"{name!r}: no name of a recording", hint="start at the list")
    path = root.joinpath(*parts)
    try:
        inside = path.resolve(strict=True).is_relative_to(root)
    except (OSError, RuntimeError, ValueError):  # absent, a loop of links, or too long a name
        inside = False
    if not inside:
        raise UnreadableFile(f"{name}: no such recording here", hint="start at the list")
    if path.is_dir():
        _all_inside(root, path)
    return Place(name, path)


def _all_inside(root: Path, folder: Path) -> None:
    """Refuse a folder with a link that leads out: its files are read as one recording."""
    for file in files_below(folder):
        if file.is_symlink() and not _resolved(file).is_relative_to(root):
            raise UnreadableFile(
                f"{folder.name}: {file.name} leads out of what is served", hint="remove the link"
            )


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return Path("/")


def files_below(folder: Path) -> Iterator[Path]:
    """Files and links below a folder, links to folders not followed; the first ``MOST_FILES``."""
    left = MOST_FILES
    for where, folders, names in os.walk(folder, followlinks=False):
        links = [f for f in folders if (Path(where) / f).is_symlink()]
        for name in sorted([*names, *links]):
            if left == 0:
                return
            left -= 1
            yield Path(where) / name


def fingerprint(path: Path) -> int:
    """Changes when the file, or any file of the folder, does."""
    files = files_below(path) if path.is_dir() else [path]
    return hash(tuple(_state(file) for file in files))


def _state(file: Path) -> tuple[str, int, int]:
    try:
        facts = file.stat()
    except OSError:
        return file.name, 0, 0
    return file.name, facts.st_mtime_ns, facts.st_size
