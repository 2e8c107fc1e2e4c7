"""Ends of the program that Pinchpoint must not lose a recording to, nor stand in the way of.

SIGTERM of a launcher or scheduler while a recording is made; forked children of a recorded program;
Ctrl-C.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType


class OnTermination:
    """Finishes a recording at SIGTERM: ``arm`` before it, ``disarm`` after it.

    Only while it is being made, and only if the program has no handler of its own.
    """

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


def leave_before_static_destructors() -> None:
    """Let a forked child of a recorded program end. To be called in it, right after the fork.

    The profiler keeps a thread that a fork does not copy. When such a child exits in the ordinary
    way, a static destructor of the profiler waits for that thread for ever (torch 2.13, with any
    use of ``torch.profiler`` before a fork). So a child leaves right after the interpreter has
    ended, with its output flushed and its own exit code, before static destructors run. Does
    nothing where libc is not glibc.

    Handlers run newest first: first everything is flushed, then ``_exit`` gets the status.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    try:
        libc = ctypes.CDLL(None)
        address = ctypes.c_void_p
        libc.on_exit(ctypes.cast(libc._exit, address), None)
        libc.__cxa_atexit(ctypes.cast(libc.fflush, address), None, None)
    except (AttributeError, OSError):
        return


def end_as_interrupted() -> None:
    """Let the interpreter end itself by SIGINT, as it does after an unhandled Ctrl-C.

    It decides by whether the last code run from text was interrupted. At exit we import modules,
    which run some (dataclasses do), so that the program's exit code would be 1 instead.
    """
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")
