"""Calls that stop a step for long and name themselves, timed exactly: collections and saves."""

import functools
import gc
import threading
import time
from collections.abc import Callable
from typing import Any


class Spans:
    """Time of the present step in each kind of call; ``take`` begins anew."""

    def __init__(self) -> None:
        self.gc_ns = self.save_ns = 0
        self._gc_began = 0
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

    def take(self) -> tuple[int, int]:
        """Nanoseconds of collecting and of saving since the last call."""
        taken = self.gc_ns, self.save_ns
        self.gc_ns = self.save_ns = 0
        return taken

    def _collects(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._gc_began = time.perf_counter_ns()
        elif self._gc_began:
            self.gc_ns += time.perf_counter_ns() - self._gc_began
            self._gc_began = 0
