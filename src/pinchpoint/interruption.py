"""Ctrl-C of commands that go on until they are ended, or wait for a program: none is lost.

Python raises KeyboardInterrupt wherever it is at that moment. In a destructor, or in the callback
of a weak reference, which every import has, the exception is printed and ignored, and a command
that is only starting then would go on for ever. So each is noted as well, and the loop of the
command asks.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

_CAME: list[int] = []


@contextmanager
def noted() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt as before, and is noted.

    One that is ignored, as under ``nohup`` or ``&`` of a script, stays so; so does one of a
    program that calls this with a handler of its own.
    """
    _CAME.clear()
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or current_thread() is not main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _CAME.clear()


def came() -> bool:
    """Whether there was one since the command began."""
    return bool(_CAME)


def as_usual() -> None:
    """Python's own handler from here on, for a loop that replaces only that one, as asyncio's.

    Raises KeyboardInterrupt if there was one already.
    """
    if came():
        raise KeyboardInterrupt
    if signal.getsignal(signal.SIGINT) is _note:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _note(number: int, frame: FrameType | None) -> None:
    _CAME.append(number)
    signal.default_int_handler(number, frame)
