"""Calls that stop a step for long and name themselves, timed exactly: collections and saves."""

import dis
import functools
import gc
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

MOST_FRAMES = 32  # of the stack of a collection: a call and what leads there, not all of a launcher
_ASKED_FOR = 2  # the generation of gc.collect(); others are Python's own in all but odd programs
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_DEREF")
_CALLS = ("CALL", "PRECALL")  # Python 3.11 calls at the second, once a line has run often

CalledAt = tuple[tuple[CodeType, int], ...]  # code and instruction, innermost first


class Spans:
    """Time of the present step in each kind of call; ``take`` begins anew."""

    def __init__(self) -> None:
        self.gc_ns = self.save_ns = 0
        self._gc_began = 0
        self._called_at: CalledAt = ()
        self._inside = False
        self.thread: int | None = None  # whose saves count; None: every thread's

    def watch_collections(self) -> Callable[[], None]:
        """Time garbage collections from now on; returns how to stop."""
        gc.callbacks.append(self._collects)

        def stop() -> None:
            if self._collects in gc.callbacks:
                gc.callbacks.remove(self._collects)

        return stop

    def watch_saves(self, serialization: Any) -> None:
        """Time ``torch.save``."""
        save = serialization.save

        @functools.wraps(save)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._inside or self.thread not in (None, threading.get_ident()):
                return save(*args, **kwargs)
            self._inside, began = True, time.perf_counter_ns()
            try:
                return save(*args, **kwargs)
            finally:
                self._inside = False
                self.save_ns += time.perf_counter_ns() - began

        serialization.save = timed

    def take(self) -> tuple[int, int, CalledAt]:
        """Nanoseconds of collecting and of saving since the last call; where gc.collect() was
        called, if it was."""
        taken = self.gc_ns, self.save_ns, self._called_at
        self.gc_ns = self.save_ns = 0
        self._called_at = ()
        return taken

    def _collects(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            if info["generation"] == _ASKED_FOR and not self._called_at:
                self._called_at = _called_at(sys._getframe(1))
            self._gc_began = time.perf_counter_ns()
        elif self._gc_began:
            self.gc_ns += time.perf_counter_ns() - self._gc_began
            self._gc_began = 0


def _called_at(frame: FrameType) -> CalledAt:
    """The stack, if its innermost frame is at a call of gc.collect(); else Python began by itself.

    Names alone are looked at: reading local variables would keep them alive.
    """
    root, last = _callee(frame.f_code, frame.f_lasti)
    found = frame.f_globals.get(root, gc if root == "gc" else None)
    if last != "collect" or (found is not gc and found is not gc.collect):
        return ()
    stack: list[tuple[CodeType, int]] = []
    at: FrameType | None = frame
    while at is not None and len(stack) < MOST_FRAMES:
        stack.append((at.f_code, at.f_lasti))
        at = at.f_back
    return tuple(stack)


@functools.lru_cache(maxsize=256)
def _callee(code: CodeType, at: int) -> tuple[str, str]:
    """First and last name of what the instruction at an offset calls: ``gc``, ``collect``.

    Empty where it calls nothing, or the interpreter keeps no columns (``-X no_debug_ranges``). What
    is called begins where the call begins, and ends before it.
    """
    found = list(dis.get_instructions(code))
    call = next((one for one in found if one.offset == at), None)
    where = call.positions if call is not None and call.opname.startswith(_CALLS) else None
    if where is None or where.col_offset is None:
        return "", ""
    begin = (where.lineno, where.col_offset)
    names = [
        one
        for one in found
        if one.offset < at
        and one.positions is not None
        and (one.positions.lineno, one.positions.col_offset) == begin
        and isinstance(one.argval, str)
    ]
    roots = [one.argval for one in names if one.opname.startswith(_LOADS)]
    return (roots[-1], names[-1].argval) if roots else ("", "")
