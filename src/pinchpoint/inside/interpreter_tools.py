"""Which parts of Pinchpoint the interpreter tells of events, and which goes without.

From Python 3.12 on it tells up to six tools (``sys.monitoring``). Three of the numbers are for a
debugger, a measure of coverage and a profiler, which are the program's own affair; the other three
are shared by all parts. A part that finds none free takes that of another one that matters less,
which ends; the program's own tools always stay.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from types import CodeType
from typing import Any, Callable, Dict, Iterable, NamedTuple, Optional

# The first two have no kind of tool, the last is for optimizers, which are rare.
NUMBERS = (4, 3, 5)

AFTER_FUNCTION = "pinchpoint function"
COMPILED_CALLS = "pinchpoint compiled calls"
LOOPS = "pinchpoint loops"
SAME_CALLS = "pinchpoint same calls"
THREADED_CALLS = "pinchpoint calls"
# Those that matter most first. Without the first three nobody knows where steps end; of the fourth
# one cause is made, if it is there, and of the last a rate beside the causes.
PARTS = (AFTER_FUNCTION, COMPILED_CALLS, LOOPS, SAME_CALLS, THREADED_CALLS)


class Tool(NamedTuple):
    """A number among the interpreter's tools, which one part holds."""

    number: int
    part: str
    monitoring: Any

    @property
    def held(self) -> bool:
        """Whether it still is this part's: the program may have freed it."""
        return bool(self.monitoring.get_tool(self.number) == self.part)

    def listen(self, event: int, heard: Optional[Callable[..., Any]]) -> None:
        """Have it called at each such event; None: nothing any more."""
        self.monitoring.register_callback(self.number, event, heard)

    def ask(self, events: int) -> None:
        """Of events anywhere; 0: of none."""
        self.monitoring.set_events(self.number, events)

    def ask_in(self, code: CodeType, events: int) -> None:
        """Of events in one code. Raises where the interpreter cannot tell of it."""
        self.monitoring.set_local_events(self.number, code, events)

    def end(self, events: Iterable[int], codes: Iterable[CodeType] = ()) -> bool:
        """Hear of no more such events, in these codes or anywhere; whether it was held so far."""
        _let_go.pop(self.part, None)
        if not self.held:
            return False
        self.ask(0)
        for event in events:
            self.listen(event, None)
        for code in codes:
            with suppress(Exception):  # one that it cannot tell of
                self.ask_in(code, 0)
        self.monitoring.free_tool_id(self.number)
        return True


# How the parts that hold a number end.
_let_go: Dict[str, Callable[[], Any]] = {}


def take(part: str, let_go: Callable[[], Any]) -> Optional[Tool]:
    """A number for a part; None where this interpreter has no such thing, or has none to give.

    ``let_go`` ends the tool; it is called when a part that matters more finds no number free.
    """
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        return None
    tool = _free(monitoring, part)
    for other in reversed(PARTS[PARTS.index(part) + 1 :]):
        if tool is not None:
            break
        if other in _let_go:
            _let_go.pop(other)()
            tool = _free(monitoring, part)
    if tool is not None:
        _let_go[part] = let_go
    return tool


def _free(monitoring: Any, part: str) -> Optional[Tool]:
    for number in NUMBERS:
        if monitoring.get_tool(number) is None:
            with suppress(ValueError):  # taken meanwhile
                monitoring.use_tool_id(number, part)
                return Tool(number, part, monitoring)
    return None


def has_lock() -> bool:
    """Whether one thread runs Python at a time: most of what is kept of events counts on that."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())
