"""Nsight Systems: SQLite exports of every version since 2020, and reports through nsys itself."""

from pathlib import Path

from pinchpoint.importers import msprof, rocpd
from pinchpoint.importers.files.database import opened
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.nsys.build import build
from pinchpoint.importers.nsys.database import must_be_an_export
from pinchpoint.importers.nsys.report_file import MAGIC, exported
from pinchpoint.trace import Trace

FORMAT = "nsys"
FILES = (".sqlite .nsys-rep", "Nsight Systems (.nsys-rep needs nsys on this machine)")
READS: tuple[str, ...] = ("host", "calls", "device", "steps", "counters")
NOT_READ = "callers in samples of the CPU, MPI, network, who made the nodes of graphs"

_SQLITE = b"SQLite format 3\x00"


def claims(path: Path, head: bytes) -> bool:
    """A SQLite database that is none of AMD's (the first bytes do not tell), or a report."""
    return head.startswith((_SQLITE, MAGIC)) and not rocpd.claims(path, head)


def read(path: Path) -> Trace:
    """The trace of an export or report.

    Raises UnreadableFile if it is damaged, is no nsys export, or is a report and no nsys is here
    that can export it.
    """
    with unpacked(path) as plain:
        with plain.open("rb") as file:
            report = file.read(len(MAGIC)) == MAGIC
        if report:
            with exported(plain, path) as export, opened(export, path) as database:
                must_be_an_export(database)
                return build(database, path.stat().st_size)
        with opened(plain, path) as database:
            if rocpd.holds(database.columns):  # packed: what it is shows only here
                return rocpd.build(database, path)
            if msprof.holds(database.columns):
                return msprof.build(database, path)
            must_be_an_export(database)
            return build(database, path.stat().st_size)
