"""The JSON text of a file, decompressed piece by piece, in bounded memory."""

import zlib
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.open import Progress

fast_zlib: Any
try:
    from isal import isal_zlib as fast_zlib
except ImportError:  # three times slower, same result
    fast_zlib = zlib
_ZLIB_ERRORS: tuple[type[Exception], ...] = (zlib.error, fast_zlib.error)


GZIP_MAGIC = b"\x1f\x8b"
_INPUT_BYTES = 256 << 10


class Text:
    """Reads a plain or gzipped file; what is damaged ends the text and is remembered."""

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path = path
        self.damage: str | None = None  # why the text ends before its end
        self.bytes_out = 0
        self._progress = progress
        try:
            self._file: IO[bytes] = path.open("rb")
            self.total_bytes = path.stat().st_size
        except OSError as error:
            raise UnreadableFile(
                f"{path}: {(error.strerror or str(error)).lower()}", hint="check the path"
            ) from None
        self._input = self._file.read(_INPUT_BYTES)
        self._consumed = len(self._input)
        self.gzipped = self._input.startswith(GZIP_MAGIC)
        self._member: Any = fast_zlib.decompressobj(wbits=31) if self.gzipped else None

    def __enter__(self) -> "Text":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    @property
    def bytes_in(self) -> int:
        """Bytes of the file that were read so far."""
        return self._consumed

    def read(self, size: int) -> bytes:
        """About ``size`` bytes, at least one; empty at the end."""
        piece = self._gunzip(size) if self.gzipped else self._next_input(size)
        self.bytes_out += len(piece)
        return piece

    def _next_input(self, size: int) -> bytes:
        piece, self._input = self._input, b""
        if not piece:
            try:
                piece = self._file.read(size)
            except OSError as error:
                self.damage = f"the file cannot be read further ({error.strerror or error})"
                return b""
            self._consumed += len(piece)
        if self._progress is not None:
            self._progress(self._consumed, self.total_bytes)
        return piece

    def _gunzip(self, size: int) -> bytes:
        while True:
            compressed = self._input or self._next_input(_INPUT_BYTES)
            self._input = b""
            if not compressed:
                if self._member is not None:
                    self.damage = self.damage or "the gzip is cut off"
                return b""
            if self._member is None:  # before a further member; zeros pad it on some media
                compressed = compressed.lstrip(b"\x00")
                if not compressed:
                    continue
                if not compressed.startswith(GZIP_MAGIC[:1]):
                    self.damage = "something that is no gzip follows the gzip"
                    return b""
                self._member = fast_zlib.decompressobj(wbits=31)
            piece = self._inflate(compressed, size)
            if piece or self.damage:
                return piece

    def _inflate(self, compressed: bytes, size: int) -> bytes:
        try:
            piece: bytes = self._member.decompress(compressed, size)
        except _ZLIB_ERRORS as error:
            self.damage = f"the gzip is damaged ({error})"
            return b""
        if self._member.eof:
            self._input = self._member.unused_data
            self._member = None
        else:
            self._input = self._member.unconsumed_tail
        return piece
