"""Lines of a text behind its beginning: a program's own output stands before what a tool prints."""

from pathlib import Path

from pinchpoint.importers.files.packed import unpacked

LOGS = (".log", ".txt", ".out", ".csv")  # what a folder is looked through for
_MORE_BYTES = 1 << 16  # what a program printed before the tool that watched it
_TAIL_BYTES = 1 << 18  # the tables that tools print after a program, and what is said before them
_NO_LOG = (b"{", b"<", b"[{", b"[\n")  # JSON, pages


def may_be_a_log(head: bytes) -> bool:
    """Whether a text begins as one that people read; a folder (without a beginning) does not."""
    return bool(head) and not head.lstrip().startswith(_NO_LOG) and b"\0" not in head


def later_lines(path: Path, head_bytes: int) -> bytes:
    """Whole lines behind the first ones and at the end: a log says there what came of a program."""
    if path.is_dir():
        return b""
    with unpacked(path) as plain, plain.open("rb") as file:
        size = plain.stat().st_size
        file.seek(head_bytes)
        text = file.read(_MORE_BYTES).partition(b"\n")[2]
        if size - _TAIL_BYTES <= file.tell():
            return text + file.read()
        file.seek(size - _TAIL_BYTES)
        return text.rpartition(b"\n")[0] + b"\n" + file.read().partition(b"\n")[2]
