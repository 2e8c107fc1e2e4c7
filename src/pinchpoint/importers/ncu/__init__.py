"""Nsight Compute: reports (``.ncu-rep``), CSV pages and terminal output of ncu."""

from pathlib import Path

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.ncu.assemble import FORMAT, assemble
from pinchpoint.importers.ncu.csv_pages import looks_like_csv, read_csv
from pinchpoint.importers.ncu.display_names import looks_like_text, read_text
from pinchpoint.importers.ncu.report_file import MAGIC, read_report
from pinchpoint.trace import Trace

__all__ = ["FILES", "FORMAT", "NOT_READ", "READS", "claims", "read"]

FILES = (".ncu-rep .csv .txt", "Nsight Compute: reports, CSV pages, printed tables")
READS: tuple[str, ...] = ("kernel counters",)
NOT_READ = "source pages"

_ZSTD = b"\x28\xb5\x2f\xfd"
_SNIFF_BYTES = 1024**2  # how much of the program's own output may come before the table


def claims(path: Path, head: bytes) -> bool:
    """A report, a CSV header, ncu's own lines before one, or a table as it prints them."""
    if head.startswith(MAGIC) or _is_compressed_report(path, head):
        return True
    text = head.decode("utf-8", "replace")
    return "==PROF== " in text or looks_like_csv(text) or looks_like_text(text)


def read(path: Path) -> Trace:
    """The profiled kernels. Raises UnreadableFile for a damaged file or one without a kernel."""
    with unpacked(path) as plain:
        with plain.open("rb") as file:
            head = file.read(_SNIFF_BYTES)
        if _is_compressed_report(path, head):
            raise UnreadableFile(
                f"{path}: a compressed report",
                hint=f"unpack it: zstd -d {path} -o {path.stem}.ncu-rep",
            )
        if head.startswith(MAGIC):
            return assemble(path, read_report(plain, path))
        text = head.decode("utf-8", "replace")
        return assemble(path, read_csv(plain) if looks_like_csv(text) else read_text(plain))


def _is_compressed_report(path: Path, head: bytes) -> bool:
    return head.startswith(_ZSTD) and ".ncu-rep" in path.name
