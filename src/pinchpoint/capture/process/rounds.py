"""Calls of a small model that are parts of one round: a request, a document, a game.

A program that ranks three hundred documents for a request calls its model three hundred times, a
fifth of a millisecond each. Such a call is no step: six of them are a millisecond, and what a
request does besides, or does for each document anew, is in none of them. Its step is the round: a
function of the program's own around these calls that is entered again and again, or a loop in one
that goes round. Both show in the frames above a call: one that was not there at the call before, or
one that stands at an earlier instruction than then.
"""

import sys
from collections import Counter
from types import CodeType, FrameType
from typing import Any

from pinchpoint.capture.samples.own_code import is_own
from pinchpoint.frozen import dataclass

SHORT_NS = 2_000_000  # a call: six of these are hardly more than one switch between threads
FEWEST_ROUNDS = 4  # before they count as what repeats
FEWEST_CALLS = 2.0  # in a round, on average: else it is the call
LEARN_NS = 1_000_000_000  # for so long, so that the outermost of several comes round, too
MOST_NS = 5_000_000_000  # then it is the call, whatever comes later
FEWEST_TO_LEARN = 64  # calls: the first ones are recorded and looked at, and long for that
LOST_AFTER = 200  # calls elsewhere: the program is past these rounds
MOST_FRAMES = 200  # above a call


@dataclass(frozen=True)
class _Place:
    """An own function above a call, and whether this is its first call."""

    code: CodeType
    instruction: int
    entered: bool


def _seen(frame: FrameType, event: str, argument: Any) -> None:  # pragma: no cover - never called
    """Marks a frame. It is a function that traces nothing, should somebody trace that frame."""


class Rounds:
    """Decides whether a call of the model ends a step, and by what."""

    def __init__(self) -> None:
        self._first_ns = self._last_ns = -1
        self._calls = self._short = 0
        self._before: list[_Place] = []
        self._rounds: Counter[tuple[int, CodeType]] = Counter()
        self._decided = False
        self._around: CodeType | None = None  # whose rounds are steps
        self._instruction = -1
        self._elsewhere = 0

    def ends_step(self, now_ns: int) -> str | None:
        """``module`` where the call is a step, ``round`` where it begins one, else None."""
        if self._around is None and not self._decided:
            self._learn(now_ns)
        if self._around is None:
            return "module"
        return "round" if self._begins() else None

    def _learn(self, now_ns: int) -> None:
        took_ns, self._last_ns = now_ns - self._last_ns, now_ns
        self._calls += 1
        if self._calls == 1:
            self._first_ns = now_ns
            return
        self._short += took_ns < SHORT_NS
        since_ns = now_ns - self._first_ns
        # A tracer has uses of its own for what marks a frame.
        if sys.gettrace() is not None or self._are_steps() or since_ns >= MOST_NS:
            self._decided, self._before = True, []
            return
        places = _places()
        at = _comes_round(self._before, places)
        if at is not None:
            self._rounds[at, places[at].code] += 1
        self._before = places
        enough = since_ns >= LEARN_NS and self._calls >= FEWEST_TO_LEARN
        if enough and (around := self._repeats()) is not None:
            self._decided, self._around, self._before = True, around, []

    def _are_steps(self) -> bool:
        """Whether calls are long enough to be steps."""
        return self._calls >= FEWEST_TO_LEARN and 2 * self._short < self._calls

    def _repeats(self) -> CodeType | None:
        often = [at for at, times in self._rounds.items() if times >= FEWEST_ROUNDS]
        depth, code = min(often, key=lambda at: at[0], default=(0, None))
        if code is None or self._calls < FEWEST_CALLS * self._rounds[depth, code]:
            return None
        return code

    def _begins(self) -> bool:
        frame: FrameType | None = sys._getframe(2)
        for _ in range(MOST_FRAMES):
            if frame is None or frame.f_code is self._around:
                break
            frame = frame.f_back
        if frame is None or frame.f_code is not self._around:
            self._elsewhere += 1
            if self._elsewhere >= LOST_AFTER:
                self._around = None
            return False
        entered, before = _mark(frame), self._instruction
        self._instruction, self._elsewhere = frame.f_lasti, 0
        return entered or frame.f_lasti < before


def _mark(frame: FrameType) -> bool:
    """Whether a frame was not marked; it is from now on, for as long as its function runs."""
    if frame.f_trace is _seen:
        return False
    frame.f_trace = _seen
    return True


def _places() -> list[_Place]:
    """The own functions above, outermost first."""
    found: list[_Place] = []
    frame: FrameType | None = sys._getframe(3)
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        if is_own(frame.f_code.co_filename):
            found.append(_Place(frame.f_code, frame.f_lasti, _mark(frame)))
        frame = frame.f_back
    return found[::-1]


def _comes_round(before: list[_Place], now: list[_Place]) -> int | None:
    """The outermost function that was entered anew since the call before, or goes round."""
    for at, (old, new) in enumerate(zip(before, now, strict=False)):
        if old.code is not new.code:
            return None
        if new.entered or new.instruction < old.instruction:
            return at
        if new.instruction > old.instruction:
            return None
    return None
