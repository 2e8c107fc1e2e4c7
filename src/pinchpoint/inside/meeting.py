"""Where both programs of a pair meet: neither begins its first step before the other is there.

``bench`` moves them from CPU to CPU from then on (``bench.run.swapped``), so that both take their
steps on the same CPUs at the same time.
"""

from __future__ import annotations

import mmap
import os
import time
from typing import Callable

MEETING_VARIABLE = "PINCHPOINT_MEETING_FILE"
THERE, GO = 0, 1  # bytes of the file: the program is there, it may go on
LENGTH = 2
_LOOKS_EVERY_S = 0.002  # of 50 ms for which it has its CPUs
_LONGEST_WAIT_S = 120.0  # the other may never come, and who measures may be gone


def meeting() -> Callable[[], None]:
    """To be called where the first step begins; returns when both are there. Later calls, and
    those where nobody is waited for, return at once."""
    name = os.environ.get(MEETING_VARIABLE)
    try:
        if not name:
            return _nobody
        with open(name, "r+b") as file:
            said = mmap.mmap(file.fileno(), LENGTH)
    except (OSError, ValueError):
        return _nobody
    process, waits = os.getpid(), True

    def wait() -> None:
        nonlocal waits
        if not waits or os.getpid() != process:
            return
        waits = False
        until = time.monotonic() + _LONGEST_WAIT_S
        said[THERE] = 1
        while not said[GO] and time.monotonic() < until:
            time.sleep(_LOOKS_EVERY_S)

    return wait


def _nobody() -> None:
    return None
