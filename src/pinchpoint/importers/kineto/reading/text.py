"""The JSON text of a file, unpacked piece by piece into the caller's buffers."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from pinchpoint.errors import HostileFile, UnreadableFile
from pinchpoint.importers.files.packed import ALWAYS_ALLOWED_BYTES, MOST_TIMES_LARGER
from pinchpoint.importers.open import Progress

fast_zlib: Any
gzip_reader: Any
try:
    from isal import igzip
    from isal import isal_zlib as fast_zlib

    gzip_reader = igzip.IGzipFile
except ImportError:  # three times slower, same result
    gzip_reader, fast_zlib = gzip.GzipFile, zlib

_DAMAGE: tuple[type[Exception], ...] = (
    *(EOFError, gzip.BadGzipFile, zlib.error, fast_zlib.error),
    OverflowError,  # isal, of a header that does not end within its buffer
)
GZIP_MAGIC = b"\x1f\x8b"
_INPUT_BYTES = 256 << 10  # packed bytes at a time
_PIECE_BYTES = 64 << 10  # so much may be lost before damage


class Text:
    """Reads a plain or gzipped file; what is damaged ends the text and is remembered."""

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path = path
        self.damage: str | None = None  # why the text ends before its end
        self.bytes_out = 0
        self._progress = progress
        try:
            self._file: IO[bytes] = path.open("rb", buffering=0)
            self.total_bytes = path.stat().st_size
            self.gzipped = self._file.read(2) == GZIP_MAGIC
            self._file.seek(0)
        except OSError as error:
            raise UnreadableFile(
                f"{path}: {(error.strerror or str(error)).lower()}", hint="check the path"
            ) from None
        self._allowed_bytes = max(self.total_bytes * MOST_TIMES_LARGER, ALWAYS_ALLOWED_BYTES)
        self._source: Any = self._file
        if self.gzipped:
            self._gzip = gzip_reader(fileobj=self._file)
            # readinto of the object itself makes a copy, that of its buffer does not
            self._source = getattr(self._gzip, "_buffer", self._gzip)
        self._salvage: Iterator[bytes] | None = None
        self._left = b""

    def __enter__(self) -> "Text":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes; empty at the end."""
        buffer = bytearray(size)
        return bytes(memoryview(buffer)[: self.readinto(memoryview(buffer))])

    def readinto(self, buffer: memoryview) -> int:
        """Fill the buffer; how many bytes there were, 0 at the end.

        HostileFile for a file that unpacks to more than any recording does.
        """
        count = 0
        if self._salvage is None:
            count = self._read(buffer)
        if self._salvage is not None:
            count = self._read_salvaged(buffer)
        self.bytes_out += count
        if self.gzipped and self.bytes_out > self._allowed_bytes:
            raise HostileFile(
                f"{self.path}: unpacks to more than {self._allowed_bytes / 1e6:.0f} MB",
                hint="unpack it yourself if you trust it: gunzip --keep FILE",
            )
        if self._progress is not None and not self._file.closed:
            self._progress(self._file.tell(), self.total_bytes)
        return count

    def _read(self, buffer: memoryview) -> int:
        try:
            count: int = self._source.readinto(buffer) or 0
        except _DAMAGE:
            # what the reader unpacked before the damage is lost with it: unpack that again
            self._salvage = _salvaged(self.path, self)
            self._skip(self.bytes_out)
            return 0
        except OSError as error:
            self.damage = f"the file cannot be read further ({error.strerror or error})"
            return 0
        return count

    def _skip(self, size: int) -> None:
        while size and (piece := self._next_salvaged()):
            self._left = piece[size:]
            size -= min(size, len(piece))

    def _next_salvaged(self) -> bytes:
        piece, self._left = self._left, b""
        return piece or next(self._salvage or iter(()), b"")

    def _read_salvaged(self, buffer: memoryview) -> int:
        piece = self._next_salvaged()
        count = min(len(piece), len(buffer))
        buffer[:count] = piece[:count]
        self._left = piece[count:]
        return count


def _salvaged(path: Path, text: Text) -> Iterator[bytes]:
    """What a damaged gzip still gives; the damage is told to ``text``."""
    with path.open("rb") as file:
        compressed = file.read(_INPUT_BYTES)
        while compressed:
            if not compressed.startswith(GZIP_MAGIC[:1]):
                return  # what follows is not part of it; gzip ignores it too
            member = fast_zlib.decompressobj(wbits=31)
            while not member.eof:
                try:
                    piece = member.decompress(compressed, _PIECE_BYTES)
                except _DAMAGE as error:
                    text.damage = f"the gzip is damaged ({error})"
                    return
                if piece:
                    yield piece
                compressed = member.unconsumed_tail
                if not member.eof and not compressed:
                    compressed = file.read(_INPUT_BYTES)
                    if not compressed:
                        text.damage = "the gzip is cut off"
                        return
            compressed = (member.unused_data or file.read(_INPUT_BYTES)).lstrip(b"\x00")
