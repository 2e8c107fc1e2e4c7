"""From a path to the importer that reads it; every bad path ends in one clear error."""

import inspect
import pkgutil
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

import pinchpoint.importers as home
from pinchpoint.errors import OutOfMemory, PinchpointError, UnreadableFile, is_out_of_memory
from pinchpoint.importers import telemetry
from pinchpoint.importers._archives import ZIP_MAGIC, unzipped
from pinchpoint.trace import Trace

HEAD_BYTES = 4096  # a page of a disk: every format shows itself in less
_UTF_16 = (b"\xff\xfe", b"\xfe\xff", b'{\x00"\x00', b"{\x00\n\x00", b"[\x00{\x00")
Progress = Callable[[int, int], None]  # bytes of the file that are read, bytes of the file
_AGAIN = "copy it again, or record it again"
_NOT_IMPORTERS = {"health", "open", "ranks", "telemetry"}


class Importer(Protocol):
    """The shape of an importer module."""

    FORMAT: str
    FILES: tuple[str, str]  # usual names of the files, and what writes them

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


def _importers() -> Iterator[Importer]:
    """Each is imported when its turn comes; the one that claims a file ends the search."""
    here = [m.name for m in pkgutil.iter_modules(home.__path__) if m.name not in _NOT_IMPORTERS]
    logs = [f"telemetry.{m.name}" for m in pkgutil.iter_modules(telemetry.__path__)]
    for name in sorted(here + logs):
        if not name.rpartition(".")[2].startswith("_"):
            yield cast(Importer, import_module(f"{home.__name__}.{name}"))


def formats() -> tuple[str, ...]:
    """The formats that can be read."""
    return tuple(importer.FORMAT for importer in _importers())


def files() -> dict[str, tuple[str, str]]:
    """Of each format: usual names of its files (content decides), and what writes them."""
    return {importer.FORMAT: importer.FILES for importer in _importers()}


def load(path: str | Path, progress: Progress | None = None) -> Trace:
    """Read a recording of any known format.

    ``progress`` is called now and then by the formats whose files can be large. Raises
    UnreadableFile, with what to do next, for anything that is not a recording.
    """
    where = Path(path)
    head = read_head(where)
    if head.startswith(ZIP_MAGIC):
        return _load_from_zip(where, progress)
    if importer := _claimant(where, head):
        return _read(importer, where, progress)
    raise UnreadableFile(
        f"{where}: {_what_it_looks_like(head)}, not a recording that Pinchpoint reads",
        hint=f"formats: {', '.join(formats())}",
    )


def _load_from_zip(path: Path, progress: Progress | None) -> Trace:
    with as_plain_file(path) as inside:
        trace = load(inside, progress)
    return replace(trace, source=replace(trace.source, path=str(path)))


@contextmanager
def as_plain_file(path: Path) -> Iterator[Path]:
    """The file itself, or a temporary copy of the one recording in a zip.

    Problems with that recording are said of the zip.
    """
    if not read_head(path).startswith(ZIP_MAGIC):
        yield path
        return
    with unzipped(path, _is_recording) as found:
        try:
            yield found.path
        except PinchpointError as error:
            error.message = error.message.replace(str(found.path), f"{path}, {found.member}")
            error.args = (error.message,)
            raise


def _is_recording(name: str, head: bytes) -> bool:
    try:
        plain = _gunzip_head(Path(name), head) if head[:2] == b"\x1f\x8b" else head
    except UnreadableFile:
        return False
    return bool(plain) and _claimant(Path(name), plain) is not None


def format_of(path: Path) -> str | None:
    """The format that a path looks like; None if it is no recording.

    A file is judged by its first bytes alone: not all that is called ``.json`` is a trace.
    """
    try:
        head = read_head(path)
    except UnreadableFile:
        return None
    importer = _claimant(Path("unnamed") if head else path, head)
    return importer.FORMAT if importer else None


def _claimant(path: Path, head: bytes) -> Importer | None:
    return next((each for each in _importers() if each.claims(path, head)), None)


def _read(importer: Importer, path: Path, progress: Progress | None) -> Trace:
    """The one place that no error of a reader passes: what a file says is never our fault.

    What stood in a field that no reader foresaw stays as the cause, for PINCHPOINT_DEBUG.
    """
    try:
        return _read_by(importer, path, progress)
    except (PinchpointError, OSError):  # an OSError names its file, and is said as it is
        raise
    except OverflowError as error:  # what numpy and datetime say of numbers that fit nowhere
        what = "a number that fits no time, size or device"
        raise UnreadableFile(f"{path}: {what}", hint=_AGAIN) from error
    except Exception as error:
        if is_out_of_memory(error):
            raise OutOfMemory(path) from None
        what = f"damaged, or no {importer.FORMAT} as its recorder writes it"
        raise UnreadableFile(f"{path}: {what} ({type(error).__name__})", hint=_AGAIN) from error


def _read_by(importer: Importer, path: Path, progress: Progress | None) -> Trace:
    if progress is not None and "progress" in inspect.signature(importer.read).parameters:
        return cast(_Reporting, importer).read(path, progress)
    return importer.read(path)


def read_head(path: Path) -> bytes:
    """The first bytes of a file, gunzipped if need be; empty for a folder."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return b""
        if not stat.S_ISREG(mode):
            raise UnreadableFile(
                f"{path}: a pipe, socket or device, not a file",
                hint="write what it gives to a file, and read that",
            )
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except FileNotFoundError:
        raise UnreadableFile(f"{path}: no such file", hint="check the path") from None
    except PermissionError:
        raise UnreadableFile(
            f"{path}: permission denied", hint=f"make it readable: chmod u+r {path}"
        ) from None
    except OSError as error:
        raise UnreadableFile(f"{path}: {error.strerror or error}", hint="check the path") from None
    except ValueError:  # a zero byte in the name
        raise UnreadableFile(f"{str(path)!r}: no path", hint="check the path") from None
    if not head:
        raise UnreadableFile(
            f"{path}: the file is empty",
            hint="the export was cut off or the disk was full; record it again",
        )
    head = _gunzip_head(path, head) if head[:2] == b"\x1f\x8b" else head
    if head.startswith(_UTF_16):
        raise UnreadableFile(
            f"{path}: the text is UTF-16, not UTF-8",
            hint="save it as UTF-8; PowerShell: Get-Content FILE | Set-Content -Encoding utf8 NEW",
        )
    return head


def _gunzip_head(path: Path, head: bytes) -> bytes:
    try:
        text = zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
    except zlib.error as error:
        raise UnreadableFile(f"{path}: damaged gzip ({error})", hint="copy it again") from None
    if not text:
        raise UnreadableFile(
            f"{path}: the gzip holds nothing, or is cut off at its start",
            hint="copy it again, or record it again",
        )
    return text


def _what_it_looks_like(head: bytes) -> str:
    start = head.lstrip()[:200].lower()
    if not head:
        return "a folder"
    if start.startswith((b"<!doctype html", b"<html")):
        return "an HTML page (a download that failed?)"
    if sum(b < 32 and b not in b"\t\n\r\f\x1b" for b in head) > len(head) // 100:
        return "binary data"
    return "text"


__all__ = [
    "HEAD_BYTES",
    "Importer",
    "Progress",
    "as_plain_file",
    "format_of",
    "formats",
    "load",
    "read_head",
]
