"""Writing a file so that its place holds the old one or the whole new one, never a part.

Every file that Pinchpoint writes in one go is written here: a disk that fills up, an error or an
interruption in the middle leaves what was there before. ``check_free`` decides which files may be
replaced at all.
"""

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from pinchpoint.errors import UnreadableFile, UsageError

try:
    import fcntl
except ImportError:  # Windows: nothing is locked there, and nothing swept
    fcntl = None  # type: ignore[assignment]

# A folder in which nothing can be made, or a place that cannot be moved to, as of one file that a
# container sees: what is there can still be overwritten.
_ONLY_IN_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV)

_BEGINS, _SCRATCH, _LOCK = ".pinchpoint-", "pinchpoint-", ".lock"
_YOUNG_S = 60  # from making a file to locking it takes far less, on any machine

_RUN_FILE = "run.json"  # run_folder.layout.RUN_FILE; a folder with it is a run
_SESSION_FILE = "session.json"  # bench.folders.SESSION_FILE
_SESSION_MARK = b'"bench.session/'  # how the schema in it begins
_HEAD_BYTES = 4096
_NAME = b"pinchpoint"  # stands at the beginning or the end of all that we write and others may
_OF_ANYBODY = (b"stacks", b"PAR1", b"# HE")
_MARK = b'"exporter":"pinchpoint"'  # what our exports say of themselves at their beginning
_ELSEWHERE = "name another file"


def check_free(
    path: Path,
    content: bytes,
    *,
    inputs: Sequence[Path] = (),
    is_recording: Callable[[Path], bool],
    force: bool = False,
) -> None:
    """Raise UsageError unless ``content`` (its beginning will do) may take the place of ``path``.

    Free are: no file, an empty one, an earlier output of the same kind, and with ``force`` any
    other file. Never free are what is read at the moment, whatever it is called; a recording; and
    what belongs to a run folder or a folder of ``bench``. A page, a picture or stacks of somebody
    else are of another kind than ours.
    """
    if any(_same(path, each) for each in inputs):
        raise UsageError(f"{path}: this is what is read; it is not replaced", hint=_ELSEWHERE)
    if not path.is_file():
        return
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        file.seek(max(file.seek(0, os.SEEK_END) - _HEAD_BYTES, 0))
        foot = file.read(_HEAD_BYTES)
    if not head:
        return
    kind = _kind(head)
    same_kind = kind == _kind(content[:_HEAD_BYTES]) and (
        not _anybody_writes(kind) or _NAME in (head + foot).lower()
    )
    if _MARK not in head and is_recording(path):
        raise UsageError(f"{path}: a recording is there; it is not replaced", hint=_ELSEWHERE)
    if not same_kind and (whose := _folder_of(path)):
        raise UsageError(f"{path}: a part of {whose} is there; it is not replaced", hint=_ELSEWHERE)
    if not same_kind and not force:
        raise UsageError(
            f"{path}: a file of another kind is there; it is not replaced",
            hint=f"{_ELSEWHERE}, or add --force",
        )


def check_free_folder(folder: Path) -> None:
    """Raise UsageError for a run folder: tables are not written between its files."""
    if (folder / _RUN_FILE).is_file():
        raise UsageError(f"{folder}: a run folder; nothing is written into it", hint=_ELSEWHERE)


def _same(path: Path, other: Path) -> bool:
    """One file under two names: links, other case, ``/dev/fd/3``. A folder is its own files too."""
    try:
        return path.samefile(other)
    except (OSError, ValueError):  # one is not there
        return False


def _folder_of(path: Path) -> str:
    """The folder that a file is a part of, in words; empty where it is of none."""
    for above in path.resolve().parents[:3]:
        if (above / _RUN_FILE).is_file():
            return "a run folder"
        if _is_session(above / _SESSION_FILE):
            return "a folder of pinchpoint bench"
    return ""


def _is_session(file: Path) -> bool:
    try:
        with file.open("rb") as there:
            return _SESSION_MARK in there.read(_HEAD_BYTES)
    except OSError:
        return False


def _anybody_writes(kind: bytes) -> bool:
    """Whether other programs write files that begin so: pages, pictures, reports of tests, stacks,
    Parquet, metrics, JSON without a schema of ours. Columns of our tables are ours alone."""
    return kind in _OF_ANYBODY or (kind[:1] in b"<{" and not kind.startswith(b'{"schema":'))


def _kind(head: bytes) -> bytes:
    """What tells kinds of output apart: a tag, what JSON begins with, a table's header."""
    start = head.lstrip()
    if start[:1] == b"<":
        return re.split(rb"[\s>]", start.lower(), maxsplit=1)[0]
    if start[:1] == b"{":
        return b"".join(start.split(b",", 1)[0].split())
    if b"\0" in head or start.startswith(b"# HELP"):
        return start[:4]  # the magic of a binary format, or a comment of Prometheus
    first = start.split(b"\n", 1)[0]
    return b"stacks" if re.fullmatch(rb".*;.* \d+", first) else first


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
    _sweep(target.parent, f"{_BEGINS}*.tmp")
    beside = target.with_name(f"{_BEGINS}{os.urandom(8).hex()}.tmp")
    try:
        beside.open("xb").close()
    except OSError as error:
        if old is None or error.errno not in _ONLY_IN_PLACE:
            raise
        yield target
        return
    try:
        with held(beside):
            _like(beside, old)
            yield beside
            if lasting:
                _wait_for_disk(beside)
            _move(beside, target, there=old is not None)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder, gone after the block; what killed processes left is swept first."""
    import tempfile

    home = Path(tempfile.gettempdir())
    _sweep(home, f"{_SCRATCH}*/{_LOCK}")
    with tempfile.TemporaryDirectory(prefix=_SCRATCH) as folder:
        (Path(folder) / _LOCK).touch()
        with held(Path(folder) / _LOCK):
            yield Path(folder)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Locked while this process lives, so that no other takes it for left behind."""
    with path.open("rb") as file:
        with suppress(OSError):  # not every file system has locks
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def lock(file: IO[Any]) -> None:
    """Lock an open file until it is closed; BlockingIOError if another process has done so."""
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # not every file system has locks
        return


@contextmanager
def in_turn(folder: Path) -> Iterator[None]:
    """Alone among the processes that do so in this folder: to add to a file that is replaced."""
    if fcntl is None:
        yield
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # not every file system has locks
            fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


@lru_cache(maxsize=1 << 6)  # of a server, every answer has a folder of its own
def _sweep(folder: Path, pattern: str) -> None:
    """Remove what a process that was killed left, once for each folder. Nothing that is in use."""
    for left in left_behind(folder, pattern):
        with suppress(OSError):
            if left.name == _LOCK:
                import shutil

                shutil.rmtree(left.parent, ignore_errors=True)
            else:
                left.unlink()


def left_behind(folder: Path, pattern: str) -> Iterator[Path]:
    """Files that killed processes ``held``; each is locked until the next is asked for.

    Only files of this user that nobody has locked and that are older than a process takes from
    making one to locking it.
    """
    for left in folder.glob(pattern) if fcntl is not None else ():
        with suppress(OSError):
            facts = left.lstat()  # to open a pipe, which anybody can make here, would wait for ever
            mine = stat.S_ISREG(facts.st_mode) and facts.st_uid == os.getuid()
            if not mine or time.time() - facts.st_mtime < _YOUNG_S:
                continue
            with left.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: it is in use
                yield left


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
        import shutil

        shutil.copyfile(beside, target)


# ------------------------------------------------------------------------------------------------
# Reading such a file again.

_MOST_BYTES = 64 << 20  # documents hold summaries; more is not one of ours


def read_bounded(path: Path) -> bytes:
    """The bytes of a small file; UnreadableFile if it is missing or far too large."""
    try:
        if path.exists() and not path.is_file():
            raise UnreadableFile(f"{path}: a folder, pipe or device", hint="name a file")
        if path.stat().st_size > _MOST_BYTES:
            raise UnreadableFile(f"{path}: larger than any such document", hint="wrong file?")
        return path.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"{path}: {error.strerror or error}", hint="check the path") from None


_DEEPEST = 50  # lists within lists; documents of Pinchpoint have up to ten


def too_deep(document: dict[str, Any]) -> bool:
    """Whether so much is nested in it that showing it would end in a RecursionError."""
    level: list[Any] = [document]
    for _ in range(_DEEPEST):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
