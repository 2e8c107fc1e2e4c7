"""Calls of the program's own functions in threads beside the main one: a server's requests, jobs.

Such calls overlap, so that none of them is a step, and no hook sees where they begin and end. From
Python 3.12 on the interpreter tells of both (``sys.monitoring``), for the few codes in which those
threads were seen. Kept are how many there were in how many threads, how long each took, and so how
many are under way at once on average. Calls that a recording held up are left out.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import CodeType
from typing import Any

from pinchpoint.capture.process.own_loops import JUDGED, TASKS
from pinchpoint.capture.samples.own_code import is_own
from pinchpoint.capture.samples.stacks import Place, import_roots, relative
from pinchpoint.inside.interpreter_tools import THREADED_CALLS, Tool, has_lock, take

MOST_CODES = 32
OUTERMOST = 3  # own functions of a stack: a worker's loop, what it calls, and a helper between
FEWEST_CALLS = 20  # that are over: of fewer, a rate means nothing
FEWEST_THREADS = 2  # a thread of its own work alone handles no requests
MOST_KEPT = 1 << 16  # durations; 0.5 MB. After that the run is described by its beginning


class _Calls:
    """Of one function."""

    def __init__(self, code: CodeType, depth: int) -> None:
        self.code, self.depth = code, depth
        self.open: dict[int, int] = {}  # by thread: when it began, 0 where it was held up
        self.threads: set[int] = set()  # as the system numbers them: identities are used again
        self.begun, self.too_often = 0, False
        self.first_ns = self.last_ns = 0
        self.took_ns: list[int] = []


class ThreadedCalls:
    """Hears of them once other threads are seen at work."""

    def __init__(self) -> None:
        self._tool: Tool | None = None
        self._began = self._over = False
        self._main = threading.main_thread().ident
        self._calls: dict[CodeType, _Calls] = {}
        self._busy_since_ns = 0
        self._busy_ns: list[tuple[int, int]] = []

    def look(self, stacks: Iterable[Sequence[Place]]) -> None:
        """Where the other threads are now, innermost first each: ask about that."""
        for stack in stacks:
            own = [code for code, _ in reversed(stack) if is_own(code.co_filename)]
            for depth, code in enumerate(own[:OUTERMOST]):
                if code not in self._calls and not code.co_flags & TASKS:
                    self._ask_about(code, depth)

    def held_up(self, *, now: bool) -> None:
        """Something of ours makes calls longer from now on, or has ended."""
        now_ns = time.perf_counter_ns()
        if now:
            self._busy_since_ns = self._busy_since_ns or now_ns
        elif self._busy_since_ns:
            self._busy_ns.append((self._busy_since_ns, now_ns))
            self._busy_since_ns = 0
        for one in tuple(self._calls.values()):
            one.open.update(dict.fromkeys(tuple(one.open), 0))

    def end(self) -> None:
        """Hear no more; what was heard stays."""
        self._over = True
        tool, self._tool = self._tool, None
        if tool is not None:
            tool.end(_events(tool), tuple(self._calls))

    def note(self) -> dict[str, Any] | None:
        """Of the outermost function that is called again and again; None without one."""
        known = [
            one
            for one in tuple(self._calls.values())
            if len(one.took_ns) >= FEWEST_CALLS and len(one.threads) >= FEWEST_THREADS
        ]
        found = min(known, key=lambda one: one.depth, default=None)
        if found is None:
            return None
        took_ns, (first_ns, last_ns) = sorted(found.took_ns), (found.first_ns, found.last_ns)
        busy_ns = sum(max(min(b, last_ns) - max(a, first_ns), 0) for a, b in tuple(self._busy_ns))
        elapsed_ns = max(last_ns - first_ns - busy_ns, 1)
        code, n = found.code, len(took_ns)
        return {
            "place": (
                relative(code.co_filename, import_roots()),
                code.co_firstlineno,
                code.co_qualname,
            ),
            "calls": found.begun,
            "threads": len(found.threads),
            "per_s": round(1e9 * n / elapsed_ns, 3),
            "at_once": round(sum(took_ns) / elapsed_ns, 3),
            "median_ns": took_ns[n // 2],
            "p95_ns": took_ns[min(int(0.95 * n), n - 1)],
        }

    def _ask_about(self, code: CodeType, depth: int) -> None:
        if not self._began and not self._over:
            self._begin()
        tool = self._tool
        if tool is None or len(self._calls) >= MOST_CODES:
            return
        self._calls[code] = _Calls(code, depth)
        try:
            start, left = _events(tool)
            tool.ask_in(code, start | left)
        except Exception:  # an interpreter with code that it cannot tell of: it does without
            self.end()

    def _begin(self) -> None:
        self._began = True
        self._tool = tool = take(THREADED_CALLS, self.end) if has_lock() else None
        if tool is not None:
            listeners = self._listeners(tool.monitoring.DISABLE)
            for event, heard in zip(_events(tool), listeners, strict=True):
                tool.listen(event, heard)

    def _listeners(self, disable: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """They run in the program: nothing may escape from them."""
        calls, now, ident = self._calls, time.perf_counter_ns, threading.get_ident

        def began(code: CodeType, offset: int) -> Any:
            try:
                one, thread, now_ns = calls[code], ident(), now()
                one.begun += 1
                one.first_ns = one.first_ns or now_ns
                if any(
                    one.begun >= passes and now_ns - one.first_ns < one.begun * shortest_ns
                    for passes, shortest_ns in JUDGED
                ):
                    one.took_ns, one.open, one.too_often = [], {}, True
                    return disable
                if thread != self._main:
                    if len(one.threads) < MOST_KEPT:
                        one.threads.add(threading.get_native_id())
                    one.open[thread] = 0 if self._busy_since_ns else now_ns
            except Exception:  # the user's program comes first
                return disable
            return None

        def ended(code: CodeType, offset: int, value: object) -> Any:
            try:
                one = calls[code]
                if one.too_often:
                    return disable
                began_ns = one.open.pop(ident(), 0)
                if began_ns and len(one.took_ns) < MOST_KEPT:
                    one.last_ns = now()
                    one.took_ns.append(one.last_ns - began_ns)
            except Exception:  # the user's program comes first
                return disable
            return None

        return began, ended


def _events(tool: Tool) -> tuple[int, int]:
    return tool.monitoring.events.PY_START, tool.monitoring.events.PY_RETURN
