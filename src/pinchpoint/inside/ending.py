"""What a process does before it becomes a program that is measured or recorded."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Callable

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def ends_with_us() -> Callable[[], None]:
    """For ``preexec_fn``: on Linux the program gets SIGTERM if this process is killed.

    Linux means the thread that starts it, which therefore has to wait for it.
    """
    ours = os.getpid()
    prctl = getattr(ctypes.CDLL(None), "prctl", None)

    def prepare() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
            if os.getppid() != ours:  # killed between the two
                os._exit(128 + signal.SIGTERM)

    return prepare
