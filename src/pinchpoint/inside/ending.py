"""What a process does before it becomes a program that is measured or recorded."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Any, Callable

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


_IGNORED: list[int] = []  # SIGCHLD, if this process was started so


def hear_of_children() -> None:
    """Undo that SIGCHLD is ignored, as processes inherit it: the system then keeps no exit code of
    a child, and Python takes each for 0. Programs get it back."""
    _IGNORED.append(signal.SIGCHLD)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def ends_with_us() -> Callable[[], None]:
    """For ``preexec_fn``: on Linux the program gets SIGTERM if this process is killed.

    Linux means the thread that starts it, which therefore has to wait for it.
    """
    ours = os.getpid()
    prctl = _prctl()

    def prepare() -> None:
        _end_with(prctl, ours)
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)

    return prepare


def end_with_parent(parent: int) -> None:
    """The same for a process of ours, which asks for it itself; ``parent`` started it."""
    _end_with(_prctl(), parent)


def _prctl() -> Any:
    return getattr(ctypes.CDLL(None), "prctl", None)


def _end_with(prctl: Any, parent: int) -> None:
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:  # killed between the two
            os._exit(128 + signal.SIGTERM)
