"""At which of a few source lines a program's steps are, by looks every few milliseconds.

A look costs some 15 µs of a core, and it is only made where somebody asks for lines: never while a
comparison is measured. Each look counts as much time as its thread had since the last one without
waiting for a CPU, and for the innermost of the asked lines that are on the stack: what a line calls
is the line's.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from . import LINES_VARIABLE

_EVERY_S = 0.003  # of eight seconds of steps: 2,500 looks, which know a share to 1 %
_AFTER_MARKS = 5  # as steps that compile and allocate are not those of the others


class LineWatch:
    """Of the thread that marks steps, from its first usual step to its last mark."""

    def __init__(self, ranges: dict[str, list[list[int]]]) -> None:
        self._ranges = {os.path.realpath(file): both for file, both in ranges.items()}
        self._names = {os.path.realpath(file): file for file in ranges}
        self._known: dict[str, str | None] = {}  # real paths by what code says; None: not asked for
        self._seen: dict[tuple[str, int], list[int]] = {}
        self._recent: list[tuple[tuple[str, int] | None, int]] = []
        self._marks = self._looks = self._ns = self._thread = 0
        self._schedule: int | None = None

    def marked(self) -> None:
        """A step ends: what was seen in it counts from now on."""
        self._marks += 1
        if self._marks < _AFTER_MARKS:
            return
        if self._marks == _AFTER_MARKS:
            self._begin()
            return
        if threading.get_ident() != self._thread:
            return
        recent, self._recent = self._recent, []
        for place, own_ns in recent:
            self._looks += 1
            self._ns += own_ns
            if place is not None:
                both = self._seen.setdefault(place, [0, 0])
                both[0] += own_ns
                both[1] += 1

    def document(self) -> dict[str, Any]:
        """File, number of its range, nanoseconds and looks of each; all looks and nanoseconds."""
        seen = [[self._names[file], n, *both] for (file, n), both in self._seen.items()]
        return {"looks": self._looks, "ns": self._ns, "seen": seen}

    def _begin(self) -> None:
        self._thread = threading.get_ident()
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC
            self._schedule = os.open("/proc/thread-self/schedstat", flags)
        except (OSError, AttributeError):
            self._schedule = None
        threading.Thread(target=self._watch, name="pinchpoint-lines", daemon=True).start()

    def _watch(self) -> None:
        last_ns, last_queued_ns = time.perf_counter_ns(), self._queued_ns()
        while True:
            time.sleep(_EVERY_S)
            now_ns, queued_ns = time.perf_counter_ns(), self._queued_ns()
            own_ns = max(now_ns - last_ns - (queued_ns - last_queued_ns), 0)
            last_ns, last_queued_ns = now_ns, queued_ns
            self._recent.append((self._place(), own_ns))

    def _place(self) -> tuple[str, int] | None:
        frame = sys._current_frames().get(self._thread)
        while frame is not None:
            file = self._file(frame.f_code.co_filename)
            if file is not None:
                line = frame.f_lineno
                for number, (first, last) in enumerate(self._ranges[file]):
                    if line is not None and first <= line <= last:
                        return file, number
            frame = frame.f_back
        return None

    def _file(self, name: str) -> str | None:
        if name not in self._known:
            path = os.path.realpath(name)
            self._known[name] = path if path in self._ranges else None
        return self._known[name]

    def _queued_ns(self) -> int:
        """That the thread was ready to run and had no CPU, in all."""
        try:
            return 0 if self._schedule is None else int(os.pread(self._schedule, 64, 0).split()[1])
        except (OSError, ValueError, IndexError):
            return 0


def asked_for() -> LineWatch | None:
    """The watch that the environment asks for; None where it asks for none, or for nonsense."""
    try:
        ranges = json.loads(os.environ.get(LINES_VARIABLE) or "null")
    except ValueError:
        return None
    return LineWatch(ranges) if isinstance(ranges, dict) and ranges else None
