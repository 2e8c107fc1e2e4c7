"""Nsight Systems: SQLite exports of every version since 2020, and reports through nsys itself."""

from pathlib import Path

from pinchpoint.importers.nsys.build import build
from pinchpoint.importers.nsys.database import opened
from pinchpoint.importers.nsys.unpacked import unpacked
from pinchpoint.trace import Trace

FORMAT = "nsys"

_SQLITE = b"SQLite format 3\x00"


def claims(path: Path, head: bytes) -> bool:
    """A SQLite database; nsys writes no other name into its first bytes."""
    return head.startswith(_SQLITE)


def read(path: Path) -> Trace:
    """The trace of an export; UnreadableFile if it is damaged or no nsys export."""
    with unpacked(path) as plain, opened(plain, path) as database:
        return build(database, path.stat().st_size)
