"""``python -m pinchpoint``, and the command ``pinchpoint``."""

import atexit
import os
import sys
from contextlib import suppress

from pinchpoint.cli import main


def run() -> int:
    """One command, and the end of the process.

    Python would take apart all modules and tables before it ends, which the system does at once:
    a twentieth of the time of ``diagnose``. What is registered for the end still runs before.
    """
    codes: list[int] = []
    atexit.register(_leave, codes)  # first in, so last to run
    codes.append(main())
    return codes[0]


def _leave(codes: list[int]) -> None:
    if not codes:  # it ended in another way than ``main`` does
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(codes[0])


if __name__ == "__main__":
    raise SystemExit(run())
