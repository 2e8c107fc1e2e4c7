"""Which scanner reads a file, and which code finds the nesting of its rows."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any, Literal

from pinchpoint.errors import UsageError
from pinchpoint.importers.kineto import nesting
from pinchpoint.importers.kineto.plain import PlainScanner
from pinchpoint.importers.kineto.scan import Scanned, Scanner, scan_in_order
from pinchpoint.importers.kineto.text import Text

compiled_scanner: Any = None
compiled_nesting: Any = None
try:
    compiled_scanner = import_module("pinchpoint.importers.kineto._scan")
    compiled_nesting = import_module("pinchpoint.importers.kineto._nest")
    from pinchpoint.importers.kineto.native import scan_in_parallel
except ImportError:  # installed without a compiler
    pass

ScannerName = Literal["native", "plain"]
"""``native`` is compiled; ``plain`` gives the same tables, several times more slowly."""

# Large enough that work by block costs nothing; for the plain scanner small, since text that is
# not strict JSON makes it read the whole block slowly.
BLOCK_BYTES: dict[ScannerName, int] = {"native": 4 << 20, "plain": 256 << 10}


def available() -> ScannerName:
    """The fastest scanner of this installation."""
    return "plain" if compiled_nesting is None else "native"


def make_scanner(scanner: ScannerName, wanted: Iterable[int] = ()) -> Scanner:
    """A scanner that also keeps the text of the wanted events."""
    if scanner == "native":
        made: Scanner = compiled_scanner.NativeScanner(wanted)
        return made
    return PlainScanner(wanted)


def scan_events(
    text: Text, rest: bytes, scanner: ScannerName, block_bytes: int | None = None
) -> Scanned:
    """Scan the events of a file."""
    block_bytes = block_bytes or BLOCK_BYTES[scanner]
    if scanner == "native":
        if compiled_nesting is None:
            raise UsageError("this installation has no compiled scanner", hint="use 'plain'")
        return scan_in_parallel(text, rest, block_bytes)
    return scan_in_order(PlainScanner(), text, rest, block_bytes)


def nest(
    rows: nesting.Rows, calls: nesting.Calls, threads: int, scanner: ScannerName
) -> nesting.Nesting:
    """See :func:`pinchpoint.importers.kineto.nesting.nest`."""
    if scanner == "native":
        found: nesting.Nesting = compiled_nesting.nest(rows, calls, threads)
        return found
    return nesting.nest(rows, calls, threads)
