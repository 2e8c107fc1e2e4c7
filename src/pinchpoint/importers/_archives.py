"""The one recording in a zip archive, as a temporary file for as long as it is read.

Browsers and CI services hand out recordings like this. An archive can claim anything: only what
its bytes really unpack to counts, and it is bounded.
"""

import lzma
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from isal import igzip
from isal.igzip_lib import IsalError as _IsalError

from pinchpoint.errors import HostileFile, UnreadableFile

# ------------------------------------------------------------------------------------------------
# A gzipped database as a plain file for as long as it is read: SQLite needs to seek.


IsalError = cast(type[Exception], _IsalError)  # the package's stubs take it for an instance
_CHUNK_BYTES = 1024**2  # unpacked at a time
_MOST_TIMES_LARGER = 100  # SQLite shrinks 4 to 20 times; gzip can reach 1000 times on nothing
_ALWAYS_ALLOWED_BYTES = 64 * 1024**2  # harmless, however well it was packed


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """``path`` itself, or a temporary gunzipped copy of it."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if not packed:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="pinchpoint-") as folder:
        plain = Path(folder) / "unpacked"
        _gunzip(path, plain)
        yield plain


def _gunzip(path: Path, plain: Path) -> None:
    most = max(path.stat().st_size * _MOST_TIMES_LARGER, _ALWAYS_ALLOWED_BYTES)
    written = 0
    try:
        with igzip.open(path, "rb") as source, plain.open("wb") as target:
            while chunk := source.read(_CHUNK_BYTES):
                written += len(chunk)
                if written > most:
                    raise HostileFile(
                        f"{path}: unpacks to more than {most / 1e6:.0f} MB",
                        hint="unpack it yourself if you trust it: gunzip --keep FILE",
                    )
                target.write(chunk)
    except (zlib.error, IsalError, EOFError, OSError) as error:
        raise UnreadableFile(
            f"{path}: damaged or cut-off gzip ({error})", hint="copy it again"
        ) from None


# ------------------------------------------------------------------------------------------------
# The one recording in a zip archive, as a temporary file for as long as it is read.


ZIP_MAGIC = b"PK\x03\x04"
MOST_DIRECTORY_BYTES = 4 << 20  # some 50,000 names; all of them are read at once
MOST_MEMBERS = 1000  # that are looked into
_ZIP_ALWAYS_ALLOWED_BYTES = 64 << 20  # harmless, however well it was packed
_ZIP_CHUNK_BYTES = 1 << 20  # unpacked at a time
_HEAD_BYTES = 4096  # as open.py reads
_SHOWN = 3  # members that an error names
_END, _END_64 = b"PK\x05\x06", b"PK\x06\x06"
_END_REACH_BYTES = (1 << 16) + 128  # a comment of at most 64 KB follows

# What zipfile lets through of damaged members and names, besides its own.
_DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, UnicodeError, IndexError)

IsRecording = Callable[[str, bytes], bool]  # by name and first bytes


@dataclass(frozen=True)
class Unzipped:
    """A recording that was taken out."""

    path: Path
    member: str


@contextmanager
def unzipped(path: Path, is_recording: IsRecording) -> Iterator[Unzipped]:
    """The recording in the archive. UnreadableFile unless there is exactly one."""
    with tempfile.TemporaryDirectory(prefix="pinchpoint-") as folder:
        try:
            with path.open("rb") as file:
                _check_directory(path, file)
                with zipfile.ZipFile(file) as archive:
                    member = _chosen(path, archive, is_recording)
                    inside = Path(folder) / _plain_name(member.filename)
                    _unpack(path, archive, member, inside)
        except (*_DAMAGE, NotImplementedError) as error:
            raise UnreadableFile(f"{path}: damaged zip ({error})", hint="copy it again") from None
        except RuntimeError:  # what zipfile raises of an encrypted member
            raise UnreadableFile(
                f"{path}: the zip wants a password", hint="unpack it, and give the recording in it"
            ) from None
        except OSError as error:
            raise UnreadableFile(
                f"{path}: cannot be unpacked ({error.strerror or error})",
                hint=f"free space in {tempfile.gettempdir()}, or set TMPDIR",
            ) from None
        yield Unzipped(inside, member.filename)


def _check_directory(path: Path, file: IO[bytes]) -> None:
    """Refuse a directory of millions of names before it is read."""
    end = file.seek(0, 2)
    file.seek(max(0, end - _END_REACH_BYTES))
    tail = file.read()
    at, at_64 = tail.rfind(_END), tail.rfind(_END_64)
    size = int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0
    if size == 0xFFFFFFFF and at_64 >= 0:
        size = int.from_bytes(tail[at_64 + 40 : at_64 + 48], "little")
    if size > MOST_DIRECTORY_BYTES:
        raise HostileFile(
            f"{path}: a zip of far too many files", hint="unpack it, and give the recording in it"
        )
    file.seek(0)


def _chosen(path: Path, archive: zipfile.ZipFile, is_recording: IsRecording) -> zipfile.ZipInfo:
    members = [m for m in archive.infolist() if not m.is_dir() and _is_of_the_user(m.filename)]
    heads = [(m, _head(archive, m)) for m in members[:MOST_MEMBERS]]
    found = [m for m, head in heads if is_recording("unnamed", head)]
    if not found:  # nothing that shows what it is: then a name will do
        found = [m for m, head in heads if is_recording(m.filename, head)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UnreadableFile(
            f"{path}: a zip without a recording that Pinchpoint reads (its files: "
            f"{_named(members) or 'none'})",
            hint="pinchpoint formats lists what can be read",
        )
    raise UnreadableFile(
        f"{path}: a zip with {len(found)} recordings ({_named(found)})",
        hint="unpack it, and give one of them, or the folder of all ranks to pinchpoint ranks",
    )


def _is_of_the_user(name: str) -> bool:
    return not name.startswith("__MACOSX/") and not name.rpartition("/")[2].startswith(".")


def _named(members: list[zipfile.ZipInfo]) -> str:
    more = f" and {len(members) - _SHOWN:,} more" if len(members) > _SHOWN else ""
    return ", ".join(m.filename for m in members[:_SHOWN]) + more


def _head(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    with archive.open(member) as source:
        return source.read(_HEAD_BYTES)


def _plain_name(member: str) -> str:
    """The last part of a name, which importers look at; never a way out of the folder."""
    name = member.replace("\\", "/").rpartition("/")[2].replace("\0", "")
    return name[-100:] if name not in ("", ".", "..") else "recording"


def _unpack(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, to: Path) -> None:
    packed = min(member.compress_size, path.stat().st_size)
    most = max(packed * _MOST_TIMES_LARGER, _ZIP_ALWAYS_ALLOWED_BYTES)
    written = 0
    with archive.open(member) as source, to.open("wb") as target:
        while chunk := source.read(_ZIP_CHUNK_BYTES):
            written += len(chunk)
            if written > most:
                raise HostileFile(
                    f"{path}: {member.filename} unpacks to more than {most / 1e6:.0f} MB",
                    hint="unpack it yourself if you trust it",
                )
            target.write(chunk)


__all__ = ["ZIP_MAGIC", "Unzipped", "unzipped"]
