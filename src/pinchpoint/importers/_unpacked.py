"""A gzipped database as a plain file for as long as it is read: SQLite needs to seek."""

import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from isal import igzip
from isal.igzip_lib import IsalError as _IsalError

from pinchpoint.errors import HostileFile, UnreadableFile

IsalError = cast(type[Exception], _IsalError)  # the package's stubs take it for an instance
_CHUNK_BYTES = 1024**2
_MOST_TIMES_LARGER = 100  # SQLite shrinks 4 to 20 times; gzip can reach 1000 times on nothing
_ALWAYS_ALLOWED_BYTES = 64 * 1024**2


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
