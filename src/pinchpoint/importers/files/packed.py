"""Files that are packed as one stream: gzip, Zstandard, xz, bzip2; text as UTF-16; pages of
MemoryViz, which have the snapshot within.

What a file is packed with is told by its first bytes, since names lie. A packed file can claim
anything: only what its bytes really unpack to counts, and it is bounded.
"""

import binascii
import bz2
import codecs
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any, cast

from isal import igzip
from isal.igzip_lib import IsalError as _IsalError

from pinchpoint.errors import HostileFile, MissingExtra, UnreadableFile
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.replacing import scratch_folder

IsalError = cast(type[Exception], _IsalError)  # the package's stubs take it for an instance
# OverflowError: isal, of a header that does not end within its buffer.
DAMAGE = (zlib.error, IsalError, lzma.LZMAError, EOFError, OSError, ValueError, OverflowError)
MOST_LAYERS = 4  # a gzipped tar of gzipped files has three
_CHUNK_BYTES = 1 << 20  # unpacked at a time
# Traces of a loop shrink 20 times with gzip and 60 times with xz, SQLite 4 to 20 times; on nothing
# gzip reaches 1000 times, the others more.
MOST_TIMES_LARGER = 100
ALWAYS_ALLOWED_BYTES = 64 << 20  # harmless, however well it was packed


@dataclass(frozen=True)
class Packing:
    """One way to pack a file; ``command`` unpacks it by hand and leaves it where it is."""

    name: str
    magic: bytes
    command: str
    opened: Callable[[IO[bytes]], IO[bytes]]
    sign: "re.Pattern[bytes] | None" = None  # instead of a magic, where first bytes do not tell


def _zstd(file: IO[bytes]) -> IO[bytes]:
    for module, reader in _ZSTD_READERS:
        try:
            return reader(import_module(module), file)
        except ImportError:
            continue
    raise MissingExtra(
        "unpacking Zstandard needs a package", hint="zstd -d FILE, or pip install zstandard"
    )


def _by_zstandard(module: Any, file: IO[bytes]) -> IO[bytes]:
    reader = module.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    return cast(IO[bytes], reader)


def _by_pyarrow(module: Any, file: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], module.CompressedInputStream(module.PythonFile(file, mode="r"), "zstd"))


def _xz(file: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], lzma.LZMAFile(file))


def _bzip2(file: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], bz2.BZ2File(file))


class _Pieces(io.RawIOBase):
    """Pieces of bytes, one after the other."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._ready = pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and (piece := next(self._pieces, None)) is not None:
            self._ready = piece
        part, self._ready = self._ready[: len(buffer)], self._ready[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def _utf_16(file: IO[bytes]) -> IO[bytes]:
    """Text of UTF-16 as UTF-8: what ``>`` of Windows PowerShell makes of a program's output."""

    def pieces() -> Iterator[bytes]:
        decode = codecs.getincrementaldecoder("utf-16")("replace").decode
        while raw := file.read(_CHUNK_BYTES):
            yield decode(raw).encode()
        yield decode(b"", True).encode()

    return cast(IO[bytes], io.BufferedReader(_Pieces(pieces())))


# The page that torch.cuda._memory_viz writes: the viewer of the web, and the snapshot within.
_PAGE = regex(rb'\s*<!doctype html>[\s\S]*?MemoryViz\.js[\s\S]*?"base64": ?"', re.IGNORECASE)


def _of_page(file: IO[bytes]) -> IO[bytes]:
    """What a page of MemoryViz shows, which stands in it as base64."""

    def pieces() -> Iterator[bytes]:
        head = file.read(_PAGE_HEAD_BYTES)
        found = _PAGE.match(head)
        left, ended = head[found.end() :] if found else b"", False
        while not ended and left:
            left, ended = left.partition(b'"')[0], b'"' in left
            whole = len(left) // 4 * 4  # characters that are three bytes
            yield binascii.a2b_base64(left[:whole])
            left = left[whole:] + (b"" if ended else file.read(_CHUNK_BYTES))
            if len(left) < 4:  # cut off
                return

    return cast(IO[bytes], io.BufferedReader(_Pieces(pieces())))


_PAGE_HEAD_BYTES = 4096  # as all first bytes; the snapshot begins behind some 250
_ZSTD_READERS: tuple[tuple[str, Callable[[Any, IO[bytes]], IO[bytes]]], ...] = (
    ("compression.zstd", lambda module, file: cast(IO[bytes], module.open(file))),  # Python 3.14
    ("zstandard", _by_zstandard),
    ("pyarrow", _by_pyarrow),
)
PACKINGS = (
    Packing("gzip", b"\x1f\x8b", "gunzip --keep", lambda f: cast(IO[bytes], igzip.open(f))),
    Packing("zstd", b"\x28\xb5\x2f\xfd", "zstd -d", _zstd),
    Packing("xz", b"\xfd7zXZ\x00", "xz --decompress --keep", _xz),
    Packing("bzip2", b"BZh", "bunzip2 --keep", _bzip2),
    # The marks that text of UTF-16 begins with; no format of this library begins so.
    Packing("UTF-16", codecs.BOM_UTF16_LE, "iconv -f UTF-16 -t UTF-8", _utf_16),
    Packing("UTF-16", codecs.BOM_UTF16_BE, "iconv -f UTF-16 -t UTF-8", _utf_16),
    Packing("MemoryViz page", b"<", 'base64 -d what stands behind "base64": in', _of_page, _PAGE),
)


def packing_of(head: bytes) -> Packing | None:
    """How a file is packed, by its first bytes."""
    return next((p for p in PACKINGS if _is_packed(head, p)), None)


def _is_packed(head: bytes, packing: Packing) -> bool:
    return bool(packing.sign.match(head)) if packing.sign else head.startswith(packing.magic)


@dataclass(frozen=True)
class Head:
    """The first bytes of what a file holds, and what it is packed with, outermost first."""

    text: bytes
    packings: tuple[Packing, ...] = ()


def head_of(file: IO[bytes], size: int) -> Head:
    """Look into an open file; damage ends the text. MissingExtra where nothing unpacks it."""
    packings: list[Packing] = []
    text = file.read(size)
    while (packing := packing_of(text)) and len(packings) < MOST_LAYERS:
        packings.append(packing)
        file.seek(0)
        source = file
        try:
            for layer in packings:
                source = layer.opened(source)
            text = source.read(size)
        except DAMAGE:
            text = _cut_gzip(file, size) if [p.name for p in packings] == ["gzip"] else b""
    return Head(text, tuple(packings))


def _cut_gzip(file: IO[bytes], size: int) -> bytes:
    """What stands before the damage."""
    file.seek(0)
    try:
        return zlib.decompressobj(wbits=31).decompress(file.read(size), size)
    except zlib.error:
        return b""


@dataclass
class Budget:
    """How much may be unpacked of a file, over all its layers and members."""

    path: Path  # as the user named it
    left_bytes: int
    allowed_bytes: int

    @classmethod
    def of(cls, path: Path) -> "Budget":
        """By the size of the file itself."""
        allowed = max(path.stat().st_size * MOST_TIMES_LARGER, ALWAYS_ALLOWED_BYTES)
        return cls(path, allowed, allowed)

    def copy(self, source: IO[bytes], to: Path, hint: str) -> None:
        """Unpack to a file; what cannot be read raises as its reader does."""
        with to.open("wb") as target:
            while chunk := source.read(_CHUNK_BYTES):
                self.left_bytes -= len(chunk)
                if self.left_bytes < 0:
                    raise HostileFile(
                        f"{self.path}: unpacks to more than {self.allowed_bytes / 1e6:.0f} MB",
                        hint=f"unpack it yourself if you trust it: {hint}",
                    )
                _write(self.path, target, chunk)


def _write(path: Path, target: IO[bytes], chunk: bytes) -> None:
    try:
        target.write(chunk)
    except OSError as error:
        import tempfile

        raise UnreadableFile(
            f"{path}: cannot be unpacked ({error.strerror or error})",
            hint=f"free space in {tempfile.gettempdir()}, or set TMPDIR",
        ) from None


def unpack(path: Path, packing: Packing, to: Path, budget: Budget) -> None:
    """Unpack one layer. Of a file that is cut off the beginning is kept, if there is one."""
    try:
        with path.open("rb") as file, packing.opened(file) as source:
            budget.copy(source, to, f"{packing.command} FILE")
    except MissingExtra as error:
        raise MissingExtra(f"{budget.path}: {error.message}", hint=error.hint) from None
    except DAMAGE as error:
        if not to.exists() or not to.stat().st_size:
            raise UnreadableFile(
                f"{budget.path}: damaged or cut-off {packing.name} ({error})",
                hint="fetch it again; to go on with half a download: curl -C - -LO URL",
            ) from None


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """``path`` itself, or a temporary gunzipped copy of it: SQLite and others need to seek."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if not packed:
        yield path
        return
    with scratch_folder() as folder:
        plain = folder / "unpacked"
        budget = Budget.of(path)
        try:
            with igzip.open(path) as source:
                budget.copy(source, plain, "gunzip --keep FILE")
        except DAMAGE as error:
            raise UnreadableFile(
                f"{path}: damaged or cut-off gzip ({error})", hint="copy it again"
            ) from None
        yield plain


__all__ = ["Budget", "Head", "head_of", "packing_of", "unpack", "unpacked"]
