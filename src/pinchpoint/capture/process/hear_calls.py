"""Hear of the calls of a few functions, and of what they return.

From Python 3.12 on the interpreter tells of these functions alone (``sys.monitoring``). Before
that it has a profile function, which hears of all calls in its thread: for some steps, and so many
events at most.
"""

import sys
import time
from collections.abc import Callable, Collection
from types import CodeType, FrameType
from typing import Any

from pinchpoint.inside.interpreter_tools import SAME_CALLS, take

Entered = Callable[[FrameType], bool]  # whether to hear of more calls of this function
Left = Callable[[FrameType, Any], bool]
# Calls and returns of Python and of C: each takes 0.5 to 1 µs in Python 3.11, some of it to copy
# the variables of its frame.
MOST_EVENTS = 400_000


class Hearing:
    """Goes on until it is ended."""

    def __init__(self, event_ns: float = 0.0) -> None:
        self.events, self._event_ns = 0, event_ns
        self.stop: Callable[[], bool] = lambda: True

    @property
    def cost_ns(self) -> int:
        """What the interpreter took to tell of events that nobody asked for."""
        return round(self.events * self._event_ns)

    def end(self) -> bool:
        """Whether all was heard."""
        return self.stop()


def hear_calls(codes: Collection[CodeType], entered: Entered, left: Left) -> Hearing:
    """Begin, in this thread at least. Raises RuntimeError where another tool has the interpreter's
    ear."""
    if sys.version_info >= (3, 12):
        return _by_tool(codes, entered, left)
    return _by_profile(codes, entered, left)


def _by_tool(codes: Collection[CodeType], entered: Entered, left: Left) -> Hearing:
    tool = take(SAME_CALLS, lambda: end())
    if tool is None:
        raise RuntimeError("other tools hear of its calls")
    events, disable = tool.monitoring.events, tool.monitoring.DISABLE

    def started(_code: CodeType, _offset: int) -> Any:
        return None if entered(sys._getframe(1)) else disable

    def returned(_code: CodeType, _offset: int, value: Any) -> Any:
        return None if left(sys._getframe(1), value) else disable

    def end() -> bool:
        return tool.end((events.PY_START, events.PY_RETURN), codes)

    try:
        tool.listen(events.PY_START, started)
        tool.listen(events.PY_RETURN, returned)
        for code in codes:
            tool.ask_in(code, events.PY_START | events.PY_RETURN)
    except Exception:
        end()
        raise
    hearing = Hearing()
    hearing.stop = end
    return hearing


def _by_profile(codes: Collection[CodeType], entered: Entered, left: Left) -> Hearing:
    if sys.getprofile() is not None:
        raise RuntimeError("another profiler hears of its calls")
    wanted, hearing = {id(code) for code in codes}, Hearing(_event_ns())

    def heard(frame: FrameType, event: str, value: Any) -> None:
        hearing.events += 1
        if event == "call":
            if id(frame.f_code) in wanted:
                entered(frame)
        elif event == "return" and id(frame.f_code) in wanted:
            left(frame, value)
        if hearing.events >= MOST_EVENTS:
            sys.setprofile(None)

    def end() -> bool:
        if sys.getprofile() is heard:
            sys.setprofile(None)
        return hearing.events < MOST_EVENTS

    hearing.stop = end
    sys.setprofile(heard)
    return hearing


_TRIALS = 200  # of two events each: half a millisecond


def _event_ns() -> float:
    """What one event takes here, of a function with a few variables."""

    def called(first: int, second: int) -> int:
        third = first
        return third + second

    wanted, counted = {0}, Hearing()

    def heard(frame: FrameType, event: str, _value: Any) -> None:
        counted.events += 1
        if event == "call":
            if id(frame.f_code) in wanted:
                counted.events = 0
        elif event == "return" and id(frame.f_code) in wanted:
            counted.events = 0

    took = []
    for profile in (None, heard):
        sys.setprofile(profile)
        began_ns = time.perf_counter_ns()
        for at in range(_TRIALS):
            called(at, at)
        took.append(time.perf_counter_ns() - began_ns)
        sys.setprofile(None)
    return max(took[1] - took[0], 0) / (2 * _TRIALS)
