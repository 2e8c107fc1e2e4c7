"""When a program calls functions that JAX has compiled, by the place of the call.

Such a program tells no hook where its steps end, and its recording tells how long they take with
the profiler alone. From Python 3.12 on the interpreter can tell of calls (``sys.monitoring``),
place by place: a place that calls something else is told of once, and costs nothing from then on.
Which of the places makes the steps is decided by who reads the recording.
"""

import os
import sys
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

from pinchpoint.frozen import dataclass
from pinchpoint.inside.interpreter_tools import COMPILED_CALLS, Tool, has_lock, take

# One costs 0.3 to 0.4 µs here: so many take 0.4 % of a core.
MOST_CALLS_PER_S = 10_000
MOST_CALLS = 1_000_000  # 8 MB of times; after that the run is described by its beginning
MOST_PLACES = 256  # a program has tens; eager ones of JAX have hundreds, and any will do
MOST_FUNCTIONS = 8  # at one place; more are made anew for each call, or are layers in a loop
FEWEST_TO_JUDGE = 8  # calls: what is called less often costs nothing
FIRST_LOOK_NS, LONGEST_LOOK_NS = 50_000_000, 2_000_000_000

Key = tuple[int, int, int]  # the code, the instruction in it, the function that is called


@dataclass(frozen=True)
class CallPlace:
    """Where a compiled function is called."""

    code: CodeType
    offset: int
    function: str

    @property
    def line(self) -> int:
        """In the file of the code."""
        for start, end, line in self.code.co_lines():
            if start <= self.offset < end and line is not None:
                return line
        return self.code.co_firstlineno


class CompiledCalls:
    """Keeps the times of calls, on the clock of ``time.perf_counter_ns``."""

    def __init__(self, unwanted: Callable[[], bool] = lambda: False) -> None:
        self.places: dict[Key, CallPlace] = {}
        self.times_ns: dict[Key, array[int]] = {}
        self.busy_ns: list[tuple[int, int]] = []  # when something of Pinchpoint held the program up
        self._unwanted = unwanted
        self._functions: dict[tuple[int, int], set[int]] = {}  # seen at a place
        self._ended: set[tuple[int, int]] = set()  # places that are called too often
        self._tool: Tool | None = None
        self._began = False
        self._kinds: dict[type, bool] = {}
        self._library = ""
        self._look_ns = self._looked_ns = 0
        self._look_every_ns = FIRST_LOOK_NS
        self._seen: dict[Key, int] = {}
        self._busy_since_ns = 0

    def begin(self) -> None:
        """Once, if this interpreter can tell of calls and nobody else has all of its places."""
        jax = sys.modules.get("jax")
        if self._began or not hasattr(sys, "monitoring") or jax is None or not has_lock():
            return
        if self._unwanted():
            return
        self._began = True
        self._library = str(Path(jax.__file__ or "jax").parent) + os.sep
        self._tool = tool = take(COMPILED_CALLS, self.end)
        if tool is None:
            return
        self._looked_ns = time.perf_counter_ns()
        self._look_ns = self._looked_ns + self._look_every_ns
        try:
            tool.listen(tool.monitoring.events.CALL, self._listener(tool.monitoring.DISABLE))
            tool.ask(tool.monitoring.events.CALL)
        except Exception:  # an interpreter with code that it cannot tell of: it does without
            self.end()

    def end(self) -> None:
        """Hear of no more calls; what was heard stays."""
        tool, self._tool = self._tool, None
        if tool is None:
            return
        with suppress(Exception):  # the user's program comes first
            tool.end((tool.monitoring.events.CALL,))

    def held_up(self, *, now: bool) -> None:
        """Something that makes steps longer begins now, or has ended."""
        if now:
            self._busy_since_ns = self._busy_since_ns or time.perf_counter_ns()
        elif self._busy_since_ns:
            self.busy_ns.append((self._busy_since_ns, time.perf_counter_ns()))
            self._busy_since_ns = 0

    def _listener(self, disable: Any) -> Callable[[CodeType, int, Any, Any], Any]:
        """Runs in the program before each of its calls that is still told of: nothing may escape
        from it."""
        known, now = self.times_ns, time.perf_counter_ns

        def called(code: CodeType, offset: int, function: Any, argument: Any) -> Any:
            try:
                times_ns = known.get((id(code), offset, id(function)))
                if times_ns is None:
                    times_ns = self._of_new(code, offset, function)
                    if times_ns is None:
                        return disable
                now_ns = now()
                times_ns.append(now_ns)
                if now_ns > self._look_ns:
                    self._look(now_ns)
            except Exception:  # the user's program comes first
                return disable
            return None

        return called

    def _of_new(self, code: CodeType, offset: int, called: Any) -> "array[int] | None":
        """Where to put the times of a call that was not seen yet; None: no more of this place."""
        function = called.__func__ if type(called) is MethodType else called
        function = function.func if type(function) is partial else function
        if not self._is_compiled(function) or code.co_filename.startswith(self._library):
            return None
        place = (id(code), offset)
        if place in self._ended:
            return None
        functions = self._functions.setdefault(place, set())
        functions.add(id(function))
        key = (*place, id(function) if len(functions) <= MOST_FUNCTIONS else 0)
        if len(functions) > MOST_FUNCTIONS:
            functions.discard(id(function))
        if key not in self.places:
            if len(self.places) >= MOST_PLACES:
                return None
            # The function is not kept: it may hold compiled programs, which the program lets go.
            name = getattr(function, "__name__", None) or type(function).__name__
            self.places[key] = CallPlace(code, offset, str(name))
        return self.times_ns.setdefault(key, array("q"))

    def _is_compiled(self, function: Any) -> bool:
        """By its type alone: to ask an object of the program for anything may run its code."""
        kind = type(function)
        if kind is FunctionType:  # ``jax.pmap`` gives one of its own, which can be lowered
            return "lower" in function.__dict__ and function.__code__.co_filename.startswith(
                self._library
            )
        known = self._kinds.get(kind)
        if known is None:
            if len(self._kinds) > MOST_PLACES:
                return False
            module = kind.__dict__.get("__module__", None)
            package = module.partition(".")[0] if isinstance(module, str) else None
            known = kind.__name__ in _COMPILED and package in ("jax", "jaxlib")
            self._kinds[kind] = known
        return known

    def _look(self, now_ns: int) -> None:
        """End the places that are called most often, where all together are called too often."""
        since_ns, self._looked_ns = now_ns - self._looked_ns, now_ns
        self._look_every_ns = min(2 * self._look_every_ns, LONGEST_LOOK_NS)
        self._look_ns = now_ns + self._look_every_ns
        counts = {key: len(times_ns) for key, times_ns in tuple(self.times_ns.items())}
        if sum(counts.values()) > MOST_CALLS or self._unwanted():
            self.end()
            return
        seen, self._seen = self._seen, counts
        new = {key: count - seen.get(key, 0) for key, count in counts.items()}
        left = max(round(since_ns * MOST_CALLS_PER_S / 1e9), FEWEST_TO_JUDGE)
        for key in sorted(new, key=lambda key: new[key]):
            left -= new[key]
            if left < 0 and new[key] >= FEWEST_TO_JUDGE:
                self._ended.add(key[:2])
                for one in [one for one in self.times_ns if one[:2] == key[:2]]:
                    del self.times_ns[one]


# Types of jaxlib and of jax: what ``jax.jit`` and ``jax.pmap`` give, and what ``.compile()`` does.
_COMPILED = ("PjitFunction", "PmapFunction", "Compiled")
