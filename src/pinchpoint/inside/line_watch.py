"""How much of each step a few source lines take, timed as the program comes to them.

Python tells the thread of the steps of each line of the functions that have such lines, and of
nothing else but that a function begins: less than a microsecond a call, some more a line. So it is
done where somebody asks for lines, and never while a comparison is measured. Looks from another
thread would cost less and be wrong where it matters: on a busy machine that thread gets a CPU when
the first one waits, and finds it at lines that wait (a line of 6 % had 1 % of the looks).

Time is without waiting for a CPU. It goes to the innermost of the asked lines that the program is
at: what a line calls is the line's.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from . import LINES_VARIABLE

_AFTER_MARKS = 5  # as steps that compile and allocate are not those of the others
_MOST_STEPS = 2000  # of which a mean is known far better than needed
# Lines in a step, beyond which timing them is most of what is timed: 5 ms of any step.
_MOST_LINES = 2000


class LineWatch:
    """Of the thread that marks steps, from its first usual step to its last mark."""

    def __init__(self, ranges: dict[str, list[list[int]]]) -> None:
        self._ranges = {os.path.realpath(file): both for file, both in ranges.items()}
        self._names = {os.path.realpath(file): file for file in ranges}
        # By the number of a code object, which is kept with it: to compare two takes long.
        self._known: dict[int, tuple[Any, list[tuple[int, int, tuple[str, int]]]]] = {}
        self._places = [(file, n) for file, both in self._ranges.items() for n in range(len(both))]
        self._steps: list[int] = []
        self._taken: dict[tuple[str, int], list[int]] = {place: [] for place in self._places}
        self._now: dict[tuple[str, int], int] = {}
        self._open: list[list[Any]] = []  # a frame and the place that it is at, outermost first
        self._marks = self._lines = self._last_ns = self._began_ns = self._thread = 0
        self._schedule: int | None = None

    def marked(self) -> None:
        """A step ends: what it took counts from now on."""
        self._marks += 1
        if self._marks < _AFTER_MARKS:
            return
        if self._marks == _AFTER_MARKS:
            self._begin()
            return
        if threading.get_ident() != self._thread or sys.gettrace() is None:
            return
        self._spent()
        if self._lines <= _MOST_LINES:
            self._steps.append(self._last_ns - self._began_ns)
            for place in self._places:
                self._taken[place].append(self._now.get(place, 0))
        if self._lines > _MOST_LINES or len(self._steps) >= _MOST_STEPS:
            sys.settrace(None)
        self._now, self._lines, self._began_ns = {}, 0, self._last_ns

    def document(self) -> dict[str, Any]:
        """Nanoseconds of each step, and of each range in it: its file, its number, the steps."""
        if self._thread == threading.get_ident():
            sys.settrace(None)
        seen = [[self._names[file], n, self._taken[file, n]] for file, n in self._places]
        return {"steps": self._steps, "seen": seen}

    def _begin(self) -> None:
        if sys.gettrace() is not None:  # a debugger, or what measures coverage
            return
        self._thread = threading.get_ident()
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC
            self._schedule = os.open("/proc/thread-self/schedstat", flags)
        except (OSError, AttributeError):
            self._schedule = None
        frame: Any = sys._getframe()
        outer: list[list[Any]] = []
        while frame is not None:
            if self._of(frame.f_code):
                frame.f_trace = self._line
                outer.append([frame, self._at(frame)])
            frame = frame.f_back
        self._open = outer[::-1]
        self._last_ns = self._began_ns = self._own_ns()
        sys.settrace(self._call)

    def _call(self, frame: Any, event: str, argument: Any) -> Any:
        if not self._of(frame.f_code):
            return None
        self._spent()
        self._open.append([frame, None])
        return self._line

    def _line(self, frame: Any, event: str, argument: Any) -> Any:
        self._spent()
        self._lines += 1
        while self._open and self._open[-1][0] is not frame:
            if not any(one[0] is frame for one in self._open):
                self._open.append([frame, None])  # a generator goes on
            else:
                self._open.pop()
        if self._open and event == "return":
            self._open.pop()
        elif self._open:
            self._open[-1][1] = self._at(frame)
        return self._line

    def _spent(self) -> None:
        """The time since the last event is that of the innermost place."""
        now_ns = self._own_ns()
        place = next((at for _, at in reversed(self._open) if at is not None), None)
        if place is not None:
            self._now[place] = self._now.get(place, 0) + now_ns - self._last_ns
        self._last_ns = now_ns

    def _at(self, frame: Any) -> tuple[str, int] | None:
        line = frame.f_lineno
        for first, last, place in self._of(frame.f_code):
            if line is not None and first <= line <= last:
                return place
        return None

    def _of(self, code: Any) -> list[tuple[int, int, tuple[str, int]]]:
        """The ranges that are asked for within a function."""
        known = self._known.get(id(code))
        if known is not None:
            return known[1]
        file = os.path.realpath(code.co_filename)
        lines = [line for *_, line in code.co_lines() if line] if file in self._ranges else []
        found = [
            (first, last, (file, n))
            for n, (first, last) in enumerate(self._ranges.get(file, ()))
            if any(first <= line <= last for line in lines)
        ]
        self._known[id(code)] = (code, found)
        return found

    def _own_ns(self) -> int:
        """A clock that stands while the thread is ready to run and has no CPU."""
        now_ns = time.perf_counter_ns()
        try:
            if self._schedule is None:
                return now_ns
            return now_ns - int(os.pread(self._schedule, 64, 0).split()[1])
        except (OSError, ValueError, IndexError):
            return now_ns


def asked_for() -> LineWatch | None:
    """The watch that the environment asks for; None where it asks for none, or for nonsense."""
    try:
        ranges = json.loads(os.environ.get(LINES_VARIABLE) or "null")
    except ValueError:
        return None
    if not isinstance(ranges, dict) or not ranges or sys.version_info < (3, 10):
        return None  # code objects have no ``co_lines`` before
    return LineWatch(ranges)
