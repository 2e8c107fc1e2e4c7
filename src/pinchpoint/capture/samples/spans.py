"""Calls that stop a step for long and name themselves, timed exactly: collections, and files of
tensors that are written and read."""

import contextlib
import functools
import gc
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from pinchpoint.capture.samples.instructions import callee
from pinchpoint.capture.samples.tensor_files import TensorFiles

MOST_FRAMES = 32  # of the stack of a collection: a call and what leads there, not all of a launcher
_ASKED_FOR = 2  # the generation of gc.collect(); others are Python's own in all but odd programs

CalledAt = tuple[tuple[CodeType, int], ...]  # code and instruction, innermost first


class Spans:
    """Time of the present step in each kind of call; ``take`` begins anew."""

    def __init__(self) -> None:
        self.gc_ns = self.save_ns = 0
        self.all_gc_ns = self.collections = 0  # of the whole run
        self.called_gc_ns = 0  # of them, that the program itself called for
        self.gc_called_at: CalledAt = ()  # where it did so last
        self._gc_began = 0
        self._called_at: CalledAt = ()  # of the present step
        self._asked: CalledAt = ()  # of the present collection
        self._inside = False
        self.thread: int | None = None  # whose saves count; None: every thread's
        self.files = TensorFiles()

    def watch_collections(self) -> Callable[[], None]:
        """Time garbage collections from now on; returns how to stop."""
        gc.callbacks.append(self._collects)

        def stop() -> None:
            if self._collects in gc.callbacks:
                gc.callbacks.remove(self._collects)

        return stop

    def watch_saves(self, serialization: Any) -> None:
        """Time ``torch.save`` and ``torch.load``."""
        for kind in ("save", "load"):
            if hasattr(serialization, kind):
                timed = self._timed(kind, getattr(serialization, kind))
                setattr(serialization, kind, timed)

    def _timed(self, kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._inside or self.thread not in (None, threading.get_ident()):
                return call(*args, **kwargs)
            self._inside, began, answer, done = True, time.perf_counter_ns(), None, False
            try:
                answer = call(*args, **kwargs)
                done = True
                return answer
            finally:
                self._inside = False
                took_ns = time.perf_counter_ns() - began
                self.save_ns += took_ns if kind == "save" else 0
                if done and not kwargs.get("mmap"):  # of what is mapped only what is used is read
                    value = answer if kind == "load" else args[0] if args else kwargs.get("obj")
                    with contextlib.suppress(Exception):  # the user's program comes first
                        place = _stack_of(sys._getframe(1))
                        self.files.called(kind, place, value, took_ns)

        return timed

    def take(self) -> tuple[int, int, CalledAt]:
        """Nanoseconds of collecting and of saving since the last call; where gc.collect() was
        called, if it was."""
        taken = self.gc_ns, self.save_ns, self._called_at
        self.gc_ns = self.save_ns = 0
        self._called_at = ()
        return taken

    def _collects(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._asked = ()
            if info["generation"] == _ASKED_FOR:
                self._asked = _called_at(sys._getframe(1))
                self._called_at = self._called_at or self._asked
            self._gc_began = time.perf_counter_ns()
        elif self._gc_began:
            took_ns = time.perf_counter_ns() - self._gc_began
            self.gc_ns += took_ns
            self.all_gc_ns += took_ns
            self.collections += 1
            if self._asked:
                self.called_gc_ns += took_ns
                self.gc_called_at = self._asked
            self._gc_began = 0


def _called_at(frame: FrameType) -> CalledAt:
    """The stack, if its innermost frame is at a call of gc.collect(); else Python began by itself.

    Names alone are looked at: reading local variables would keep them alive.
    """
    names = callee(frame.f_code, frame.f_lasti)
    if not names or names[-1] != "collect":
        return ()
    root = names[0]
    found = frame.f_globals.get(root, gc if root == "gc" else None)
    if found is not gc and found is not gc.collect:
        return ()
    return _stack_of(frame)


def _stack_of(frame: FrameType) -> CalledAt:
    stack: list[tuple[CodeType, int]] = []
    at: FrameType | None = frame
    while at is not None and len(stack) < MOST_FRAMES:
        stack.append((at.f_code, at.f_lasti))
        at = at.f_back
    return tuple(stack)
