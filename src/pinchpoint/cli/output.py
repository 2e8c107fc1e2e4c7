"""Where text goes: answers to standard output, everything else to standard error."""

import os
import shutil
import sys
from pathlib import Path

from pinchpoint.errors import UsageError
from pinchpoint.report.plain import ascii_only, plain
from pinchpoint.report.terminal import Look

_LOG_WIDTH = 80  # logs and pipes have no width of their own
_WIDEST = 120  # longer lines are hard to read


def show(text: str) -> None:
    """Write an answer to standard output, as UTF-8 whatever the locale says."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()  # before what follows on standard error


def show_plainly(text: str) -> None:
    """Write text of our own to standard output, in ASCII where the terminal has only that."""
    show(text if has_unicode() else ascii_only(text))


def note(text: str) -> None:
    """Write a remark to standard error."""
    print(plain(text), file=sys.stderr, flush=True)


def write_file(path: Path, text: str) -> None:
    """Write a whole file; UsageError if that is impossible."""
    try:
        path.write_text(text, "utf-8", "replace")
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written ({error.strerror})", hint="name another file"
        ) from None


def look(*, verbose: bool) -> Look:
    """What standard output can show."""
    terminal = sys.stdout.isatty()
    columns = shutil.get_terminal_size().columns if terminal else _LOG_WIDTH
    return Look(
        width=min(max(columns, 40), _WIDEST),
        colour=_has_colour(terminal),
        unicode=has_unicode(),
        verbose=verbose,
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
