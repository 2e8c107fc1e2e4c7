"""Writing a file so that its place holds the old one or the whole new one, never a part.

Every file that Pinchpoint writes in one go is written here: a disk that fills up, an error or an
interruption in the middle leaves what was there before.
"""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# A folder in which nothing can be made, or a place that cannot be moved to, as of one file that a
# container sees: what is there can still be overwritten.
_ONLY_IN_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV)


@contextmanager
def replacing(path: Path, *, lasting: bool = False) -> Iterator[Path]:
    """A new empty file to fill; after the block it takes the place of ``path``.

    A link stays, and what it leads to is replaced; a file keeps its permissions and its owner.
    ``lasting`` waits until the disk has it. Raises OSError if the place cannot be written, or is a
    folder or a device: replacing a device would take it from the machine.
    """
    target = _end_of_links(path) if path.is_symlink() else path
    old = _facts(target)
    if old is not None and not stat.S_ISREG(old.st_mode):
        raise OSError(errno.EEXIST, "a folder or a device", str(path))
    if old is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    beside = target.with_name(f".pinchpoint-{secrets.token_hex(8)}.tmp")
    try:
        beside.open("xb").close()
    except OSError as error:
        if old is None or error.errno not in _ONLY_IN_PLACE:
            raise
        yield target
        return
    try:
        _like(beside, old)
        yield beside
        if lasting:
            _wait_for_disk(beside)
        _move(beside, target, there=old is not None)
    finally:
        beside.unlink(missing_ok=True)


def _end_of_links(path: Path) -> Path:
    """What a link leads to. OSError where it leads to itself, which Python 3.11 calls an error."""
    try:
        return path.resolve()
    except RuntimeError:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None


def _facts(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _like(path: Path, old: os.stat_result | None) -> None:
    if old is None:
        return
    if hasattr(os, "chown"):
        with suppress(OSError):  # only an administrator gives files away
            os.chown(path, old.st_uid, old.st_gid)
    path.chmod(stat.S_IMODE(old.st_mode))


def _wait_for_disk(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _move(beside: Path, target: Path, *, there: bool) -> None:
    try:
        beside.replace(target)
    except OSError as error:
        if not there or error.errno not in _ONLY_IN_PLACE:
            raise
        shutil.copyfile(beside, target)
