"""From a path to the importer that reads it; every bad path ends in one clear error."""

import inspect
import os
import pkgutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

import pinchpoint.importers as home
from pinchpoint.errors import (
    MissingExtra,
    NotThisFormat,
    PinchpointError,
    UnreadableFile,
    out_of_memory,
)
from pinchpoint.importers import telemetry
from pinchpoint.importers.assembly.facts import check_facts
from pinchpoint.importers.files.archives import folder_of, must_be_unpacked, plain_file
from pinchpoint.importers.files.later_lines import LOGS, later_lines, may_be_a_log
from pinchpoint.importers.files.packed import Head, head_of
from pinchpoint.importers.files.remote import local_copy, url_in
from pinchpoint.importers.files.strangers import guess, unmistakable, wrote
from pinchpoint.importers.last_resort import any_readers
from pinchpoint.trace import Trace
from pinchpoint.trace.window import Part

_DATABASE = b"SQLite format 3\x00"
HEAD_BYTES = 4096  # a page of a disk: every format shows itself in less
# Without the mark that such text begins with; with it, it is read.
_UTF_16 = (b'{\x00"\x00', b"{\x00\n\x00", b"[\x00{\x00")
# What formats tell of, and the parts of a Trace that hold it.
PARTS = {
    "host": ("host_ops",),
    "calls": ("api_calls",),
    "device": ("device_ops",),
    "steps": ("steps",),
    "memory": ("allocations", "snapshot"),
    "counters": ("counters",),
    "kernel counters": ("kernel_counters",),
    "compiled operations": ("compiled_ops",),
    "sums": ("summaries",),
}
Progress = Callable[[int, int], None]  # bytes of the file that are read, bytes of the file
_AGAIN = "copy it again, or record it again"
_RECORD = "record one: pinchpoint run python train.py; pinchpoint formats lists what is read"
_IN_LOGS = ("ncu", "nsys_stats", "program_logs", "telemetry")  # what is printed among other lines
_NOT_IMPORTERS = {"assembly", "files", "health", "last_resort", "open", "ranks", "telemetry"}


class Importer(Protocol):
    """The shape of an importer module."""

    FORMAT: str
    FILES: tuple[str, str]  # usual names of the files, and what writes them
    READS: tuple[str, ...]  # what may be in its trace: keys of PARTS
    NOT_READ: str  # what files of this format may hold beside; empty where that is nothing

    def claims(self, path: Path, head: bytes) -> bool:
        """Whether the file looks like this format; ``head`` is empty for a folder."""
        ...

    def read(self, path: Path) -> Trace:
        """The trace, or an UnreadableFile."""
        ...


class _Reporting(Importer, Protocol):
    """An importer of large files."""

    def read(self, path: Path, progress: Progress | None = None) -> Trace:
        """The same, telling how far it is."""
        ...


class _Parting(Importer, Protocol):
    """An importer of files of which a part is enough."""

    def read(
        self, path: Path, progress: Progress | None = None, *, part: Part | None = None
    ) -> Trace:
        """The same; of a large file what lies far from the part may be left out."""
        ...


def _importers() -> Iterator[Importer]:
    """Each is imported when its turn comes; the one that claims a file ends the search."""
    for name in _names():
        yield cast(Importer, import_module(f"{home.__name__}.{name}"))


@cache
def _names() -> tuple[str, ...]:
    here = [m.name for m in pkgutil.iter_modules(home.__path__) if m.name not in _NOT_IMPORTERS]
    logs = [f"telemetry.{m.name}" for m in pkgutil.iter_modules(telemetry.__path__)]
    return tuple(n for n in sorted(here + logs) if not n.rpartition(".")[2].startswith("_"))


def formats() -> tuple[str, ...]:
    """The formats that can be read."""
    return tuple(importer.FORMAT for importer in _importers())


def files() -> dict[str, tuple[str, str]]:
    """Of each format: usual names of its files (content decides), and what writes them."""
    return {importer.FORMAT: importer.FILES for importer in _importers()}


def reads() -> dict[str, tuple[tuple[str, ...], str]]:
    """Of each format: what is read from it (keys of ``PARTS``), and what is not."""
    return {importer.FORMAT: (importer.READS, importer.NOT_READ) for importer in _importers()}


def load(path: str | Path, progress: Progress | None = None, part: Part | None = None) -> Trace:
    """Read a recording of any known format.

    ``progress`` is called now and then by the formats whose files can be large. Where only a
    ``part`` counts, what lies far from it may be left out; the caller cuts the rest. Raises
    UnreadableFile, with what to do next, for anything that is not a recording.
    """
    if url := url_in(path):
        with local_copy(url) as copy:
            return _said_of(url, copy, load(copy, progress, part))
    where = Path(path)
    head = _look(where)
    if must_be_unpacked(head):
        with plain_file(where, head, _is_recording) as inside:
            return _said_of(str(where), inside, load(inside, progress, part))
    _refuse_strangers(where, head.text)
    if importer := _claimant(where, head.text):
        try:
            return _read(importer, where, progress, part)
        except NotThisFormat as error:
            return _read_as_figures(where, head.text, error, trace=True)
    if where.is_dir() and (alone := _alone_in(where)):
        return load(alone, progress, part)
    more = later_lines(where, HEAD_BYTES)
    if importer := _after_other_output(where, head.text, more):
        return _read(importer, where, progress, part)
    what, hint = guess(head.text, more) or (_what_it_looks_like(head.text), "")
    refused = NotThisFormat(
        f"{where}: {what}, not a recording that Pinchpoint reads", hint=hint or _RECORD
    )
    if hint:
        raise refused
    return _read_as_figures(where, head.text, refused)


def _read_as_figures(
    path: Path, head: bytes, error: NotThisFormat, *, trace: bool = False
) -> Trace:
    """What is no recording may be a table or a log; else what it is, in the words of its reader.

    Of what looked like a trace, those of the reader of traces.
    """
    for reader in any_readers(path, head):
        try:
            return _read(cast(Importer, reader), path, None)
        except NotThisFormat as more:
            error = error if trace else more
        except UnreadableFile:
            if trace:
                raise error from None
            raise
    raise error


def _alone_in(folder: Path) -> Path | None:
    """The one recording below a folder, such as JAX's profiler fills; None without any."""
    from pinchpoint.importers.ranks.places import listed

    inside = [Path(one) for one in listed([str(folder)])]
    if len(inside) > 1:
        newest = max(inside, key=lambda path: path.stat().st_mtime_ns)
        raise UnreadableFile(
            f"{folder}: a folder with {len(inside)} recordings, and one is asked for",
            hint=f"name it; the newest is {newest}",
        )
    return inside[0] if inside else None


def _after_other_output(path: Path, head: bytes, more: bytes) -> Importer | None:
    """Who reads a text by what a program printed later: its own output stands before a table.

    Not where the log names the recording that was made of it, which has more.
    """
    if not more or not may_be_a_log(head) or wrote(head + more):
        return None
    names = (name for name in _names() if name.partition(".")[0] in _IN_LOGS)
    modules = (cast(Importer, import_module(f"{home.__name__}.{name}")) for name in names)
    return next((each for each in modules if each.claims(path, more)), None)


def _said_of(place: str, copy: Path, trace: Trace) -> Trace:
    """The trace of a temporary copy, said of where it is from."""
    path = trace.source.path.replace(str(copy), place)
    return replace(trace, source=replace(trace.source, path=path))


def _refuse_strangers(path: Path, head: bytes) -> None:
    if found := unmistakable(path, head):
        raise UnreadableFile(f"{path}: {found[0]}", hint=found[1])


@contextmanager
def as_plain_file(path: Path) -> Iterator[Path]:
    """The file itself, or a temporary copy of the one recording that is packed in it.

    Problems with that recording are said of the file.
    """
    head = _look(path)
    if not must_be_unpacked(head):
        yield path
        return
    with plain_file(path, head, _is_recording) as inside:
        yield inside


@contextmanager
def as_folder(path: Path) -> Iterator[Path]:
    """A temporary folder of the recordings in an archive that holds several; else the path."""
    try:
        head = _look(path)
    except UnreadableFile:
        yield path  # reading it says why
        return
    if not must_be_unpacked(head):
        yield path
        return
    with folder_of(path, head, _is_recording) as inside:
        yield inside


def _is_recording(name: str, head: bytes) -> bool:
    where = Path(name)
    if not head or unmistakable(where, head) is not None:
        return False
    if len(head) > HEAD_BYTES:  # more was looked at, since the beginning told nothing
        return _after_other_output(where, head[:HEAD_BYTES], head[HEAD_BYTES:]) is not None
    return _claimant(where, head) is not None


def format_of(path: Path) -> str | None:
    """The format that a path looks like; None if it is no recording.

    A file is judged by its first bytes alone: not all that is called ``.json`` is a trace.
    """
    try:
        head = read_head(path)
    except UnreadableFile:
        return None
    # The first bytes of databases are alike; their tables tell.
    named = not head or head.startswith(_DATABASE)
    importer = _claimant(path if named else Path("unnamed"), head)
    if importer is None and path.suffix.lower() in LOGS and may_be_a_log(head):
        importer = _after_other_output(path, head, later_lines(path, HEAD_BYTES))
    return importer.FORMAT if importer else None


def _claimant(path: Path, head: bytes) -> Importer | None:
    return next((each for each in _importers() if each.claims(path, head)), None)


def _read(
    importer: Importer, path: Path, progress: Progress | None, part: Part | None = None
) -> Trace:
    with guarded(path, importer.FORMAT):
        trace = _read_by(importer, path, progress, part)
        check_facts(trace)
        return trace


@contextmanager
def guarded(path: Path, format: str) -> Iterator[None]:
    """The one place that no error of a reader passes: what a file says is never our fault.

    What stood in a field that no reader foresaw stays as the cause, for PINCHPOINT_DEBUG.
    """
    try:
        yield
    except (PinchpointError, OSError):  # an OSError names its file, and is said as it is
        raise
    except OverflowError as error:  # what numpy and datetime say of numbers that fit nowhere
        what = "a number that fits no time, size or device"
        raise UnreadableFile(f"{path}: {what}", hint=_AGAIN) from error
    except Exception as error:
        if (lack := out_of_memory(error, path)) is not None:
            raise lack from None
        what = f"damaged, or no {format} as its recorder writes it"
        raise UnreadableFile(f"{path}: {what} ({type(error).__name__})", hint=_AGAIN) from error


def _read_by(importer: Importer, path: Path, progress: Progress | None, part: Part | None) -> Trace:
    if part is not None and "part" in inspect.signature(importer.read).parameters:
        return cast(_Parting, importer).read(path, progress, part=part)
    if progress is not None and "progress" in inspect.signature(importer.read).parameters:
        return cast(_Reporting, importer).read(path, progress)
    return importer.read(path)


def read_head(path: Path) -> bytes:
    """The first bytes of a file, unpacked if need be; empty for a folder."""
    return _look(path).text


def _look(path: Path) -> Head:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return Head(b"")
        if not stat.S_ISREG(mode):
            raise UnreadableFile(
                f"{path}: a pipe, socket or device, not a file",
                hint="write what it gives to a file, and read that",
            )
        with open(path, "rb", opener=_at_once) as file:
            if file.read(1) is None:
                raise UnreadableFile(f"{path}: gives nothing yet", hint="name a file")
            file.seek(0)
            head = head_of(file, HEAD_BYTES)
    except FileNotFoundError:
        raise UnreadableFile(f"{path}: no such file", hint="check the path") from None
    except PermissionError:
        raise UnreadableFile(
            f"{path}: permission denied", hint=f"make it readable: chmod u+r {path}"
        ) from None
    except MissingExtra as error:
        raise MissingExtra(f"{path}: {error.message}", hint=error.hint) from None
    except OSError as error:
        raise UnreadableFile(f"{path}: {error.strerror or error}", hint="check the path") from None
    except ValueError:  # a zero byte in the name
        raise UnreadableFile(f"{str(path)!r}: no path", hint="check the path") from None
    return _with_text(path, head)


def _at_once(path: str, flags: int) -> int:
    """Opened so that a kernel's file that would wait for more (``/proc/kmsg``) is an error."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _with_text(path: Path, head: Head) -> Head:
    if head.packings and not head.text:
        name = head.packings[-1].name
        raise UnreadableFile(
            f"{path}: the {name} holds nothing, is damaged, or is cut off at its start",
            hint="copy it again, or record it again",
        )
    if not head.text:
        raise UnreadableFile(
            f"{path}: the file is empty",
            hint="the export was cut off or the disk was full; record it again",
        )
    if head.text.startswith(_UTF_16):
        raise UnreadableFile(
            f"{path}: the text is UTF-16, not UTF-8",
            hint="save it as UTF-8; PowerShell: Get-Content FILE | Set-Content -Encoding utf8 NEW",
        )
    return head


def _what_it_looks_like(head: bytes) -> str:
    if not head:
        return "a folder"
    return "markup (XML, HTML)" if head.lstrip()[:1] == b"<" else "binary data"


__all__ = [
    "HEAD_BYTES",
    "Importer",
    "Progress",
    "as_folder",
    "as_plain_file",
    "format_of",
    "formats",
    "guarded",
    "load",
    "read_head",
]
