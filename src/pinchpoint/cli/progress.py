"""A sign of life on standard error while a large file is read, only for people."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pinchpoint.importers.open import Progress

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


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
