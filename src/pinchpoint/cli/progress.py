"""A sign of life on standard error while a large file is read, only for people."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LARGE_FILE_BYTES = 20_000_000  # smaller ones are read before a bar would be seen


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Show a moving bar and the elapsed time until the block ends."""
    if not sys.stderr.isatty() or _bytes(path) < LARGE_FILE_BYTES:
        yield
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from pinchpoint.report.plain import plain

    label = f"reading {plain(path.name, 40)} ({_bytes(path) / 1e6:.0f} MB)"
    columns = (TextColumn(escape(label)), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task("reading", total=None)
        yield


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
