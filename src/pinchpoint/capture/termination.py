"""Keeps a recording when a job is ended by SIGTERM, as launchers and schedulers do.

Only while a recording is being made, and only if the program has no handler of its own.
"""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType


class OnTermination:
    """``arm`` before a recording, ``disarm`` after it."""

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish = finish
        self._armed = False

    def arm(self) -> None:
        """From now on, finish first and end by the signal then."""
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._handle)
            self._armed = True

    def disarm(self) -> None:
        """Leave the signal as it was, unless the program has set a handler meanwhile."""
        in_main = threading.current_thread() is threading.main_thread()
        if self._armed and in_main:
            self._armed = False
            if signal.getsignal(signal.SIGTERM) == self._handle:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        try:
            self._finish()
        finally:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
