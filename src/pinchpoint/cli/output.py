"""Where text goes: answers to standard output, everything else to standard error."""

import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pinchpoint.errors import UsageError
from pinchpoint.replacing import check_free, replacing
from pinchpoint.report.plain import REMARK_LIMIT, ascii_only, escaped, plain
from pinchpoint.report.terminal import Look

if TYPE_CHECKING:
    from pinchpoint.importers.open import Progress

Counted = Callable[[int, int], None]  # things that are done, things in all
_LOG_WIDTH = 80  # logs and pipes have no width of their own
_WIDEST = 240  # wider than screens; texts wrap earlier
_WRITTEN: list[Path] = []  # for whoever interrupts a command


def show(text: str) -> None:
    """Write an answer to standard output, as UTF-8 whatever the locale says."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()  # before what follows on standard error


def show_json(document: bytes | str) -> None:
    """Write a JSON document to standard output, with what could steer a terminal escaped."""
    text = document if isinstance(document, str) else document.decode()
    show(escaped(text.removesuffix("\n")) + "\n")


def show_plainly(text: str) -> None:
    """Write text of our own to standard output, in ASCII where the terminal has only that."""
    show(text if has_unicode() else ascii_only(text))


def note(text: str) -> None:
    """Write a remark of one line to standard error."""
    aside(plain(text, REMARK_LIMIT))


def aside(text: str) -> None:
    """Write text of our own to standard error, if anybody is there: no answer depends on it."""
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def wrote(path: Path, more: str = "") -> None:
    """Say that a file or a folder is written now, and remember it."""
    _WRITTEN.append(path)
    note(f"wrote {path}{more}")


def begin() -> None:
    """A command begins, and has written nothing."""
    _WRITTEN.clear()


def written() -> tuple[Path, ...]:
    """What this command has written so far."""
    return tuple(_WRITTEN)


def may_write(
    path: Path, beginning: bytes, *, inputs: Sequence[Path] = (), force: bool = False
) -> None:
    """Raise UsageError if an output that begins so would destroy what is there."""
    from pinchpoint.importers.last_resort import is_recording

    check_free(path, beginning, inputs=inputs, is_recording=is_recording, force=force)


def must_be_writable(path: Path, beginning: bytes = b"", *, force: bool = True) -> None:
    """What ``may_write`` says, and whether a file can be made there at all: before what takes long.

    Without a beginning only a recording is spared; UsageError in all cases.
    """
    try:
        may_write(path, beginning, force=force)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with suppress(FileNotFoundError):
            path.stat()  # a link to itself, a name that is too long
        if not path.exists():
            import tempfile

            tempfile.TemporaryFile(dir=path.resolve().parent, prefix=".pinchpoint-").close()
    except (OSError, RuntimeError) as error:  # RuntimeError: a link to itself, before Python 3.13
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: cannot be written ({why})", hint="name another file") from None


def write_file(path: Path, text: str, *, inputs: Sequence[Path] = (), force: bool = False) -> None:
    """Write a whole file or leave what was there; UsageError if that is impossible.

    ``inputs`` are never replaced, nor are recordings; with ``force`` files of another kind are. A
    pipe that is read, or a device, takes the text as it is.
    """
    content = text.encode("utf-8", "replace")
    try:
        may_write(path, content, inputs=inputs, force=force)
        if path.exists() and not path.is_file():
            _fill(path, content)
            return
        with replacing(path) as beside:
            beside.write_bytes(content)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: cannot be written ({why})", hint="name another file") from None


def _fill(path: Path, content: bytes) -> None:
    """Write to a pipe or device; OSError of a pipe that nobody reads, which would never end."""
    if path.is_fifo():
        try:
            number = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            why = "nobody reads this pipe" if error.errno == errno.ENXIO else error.strerror
            raise OSError(error.errno, why) from None
        os.set_blocking(number, True)
        with os.fdopen(number, "wb") as pipe:
            pipe.write(content)
    else:
        path.write_bytes(content)


def look() -> Look:
    """What standard output can show."""
    terminal, columns = sys.stdout.isatty(), _LOG_WIDTH
    if terminal:
        import shutil

        columns = shutil.get_terminal_size().columns
    return Look(
        width=min(max(columns, 40), _WIDEST),
        colour=_has_colour(terminal),
        unicode=has_unicode(),
        continues=terminal,
    )


def has_unicode() -> bool:
    """False where the user chose the C locale, or Python writes something else than UTF-8."""
    chosen = os.environ.get("LC_ALL") or os.environ.get("LANG") or ""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return encoding.startswith("utf") and chosen not in ("C", "POSIX")


def _has_colour(terminal: bool) -> bool:
    if os.environ.get("NO_COLOR"):  # https://no-color.org
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (terminal and os.environ.get("TERM") != "dumb")


# ------------------------------------------------------------------------------------------------
# A sign of life on standard error while a large file is read, only for people.


LARGE_FILE_BYTES = 20_000_000  # smaller ones are read before a bar would be seen


@contextmanager
def reading(path: Path) -> "Iterator[Progress | None]":
    """A bar for ``load`` to report to until the block ends; None where nobody would look at it."""
    if not sys.stderr.isatty() or _bytes(path) < LARGE_FILE_BYTES:
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    from pinchpoint.report.plain import plain

    label = f"reading {plain(path.name, 40)} ({_bytes(path) / 1e6:.0f} MB)"
    columns = (TextColumn(escape(label)), BarColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def counting(what: str = "reading ranks", *, rules: bool = True) -> "Iterator[Counted | None]":
    """A bar of files on standard error; in a log a line where rules judge many of them."""
    if not sys.stderr.isatty():
        yield _Log(what).add if rules else None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


_MANY = 100  # recordings: fewer take less than five seconds of CPU
_S_EACH = 0.03  # of CPU for all rules of a recording however small: docs/reliability.md


class _Log:
    """Says once how much there is to do."""

    def __init__(self, what: str) -> None:
        self._what, self._said = what, False

    def add(self, done: int, total: int) -> None:
        """So many of all are done."""
        if self._said or total < _MANY:
            return
        self._said = True
        note(f"{self._what}: {total:,}; all rules take about {total * _S_EACH:.0f} s of CPU")


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
