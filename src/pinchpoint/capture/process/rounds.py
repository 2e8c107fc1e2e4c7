"""Calls of a model that are parts of one round: a request, a document, a game.

A program that ranks three hundred documents for a request calls its model three hundred times, a
fifth of a millisecond each. Such a call is no step: six of them are a millisecond, and what a
request does besides, or does for each document anew, is in none of them. Nor is it where a request
is a long call and two short ones. Its step is the round: a function of the program's own around
these calls that is entered again and again, or a loop in one that goes round. Both show in the
frames above a call: one that was not there at the call before, or one that stands at an earlier
instruction than then.
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
MOST_LONG_CALLS = 8.0  # of calls that last: a text of more tokens has enough that are alike
DIFFERENT_RATIO = 1.5  # of the first call in a round to the others: the loop's turns are not alike
LEARN_NS = 1_000_000_000  # for so long, so that the outermost of several comes round, too
MOST_NS = 5_000_000_000  # then it is the call, whatever comes later
FEWEST_TO_LEARN = 64  # calls: the first ones are recorded and looked at, and long for that
MOST_TO_LEARN = 256  # calls, however long they take
MOST_CALLS = 10_000  # looked at, 20 µs each: a fifth of a second
LOST_AFTER = 200  # calls elsewhere: the program is past these rounds
MOST_FRAMES = 200  # above a call


@dataclass(frozen=True)
class _Above:
    """An own function above a call, and whether this is its first call."""

    code: CodeType
    instruction: int
    entered: bool


@dataclass(frozen=True)
class _Came:
    """A call: which of the functions above came round since the one before, and what it took."""

    at: int | None  # position in ``places``
    places: list[_Above]  # outermost first
    took_ns: int


@dataclass(frozen=True)
class _Place:
    """A function of the program, and how deep below the outermost."""

    depth: int
    code: CodeType


def _median(ns: list[int]) -> int:
    return sorted(ns)[len(ns) // 2]


def _seen(frame: FrameType, event: str, argument: Any) -> None:  # pragma: no cover - never called
    """Marks a frame. It is a function that traces nothing, should somebody trace that frame."""


class Rounds:
    """Decides whether a call of the model ends a step, and by what."""

    def __init__(self) -> None:
        self._first_ns = self._last_ns = -1
        self._calls = self._short = 0
        self._before: list[_Above] = []
        self._came: list[_Came] = []  # of the first calls
        self._codes: dict[int, Counter[CodeType]] = {}  # that came round, by how deep they are
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
        if sys.gettrace() is not None or (since_ns >= MOST_NS and self._calls >= MOST_TO_LEARN):
            self._settle(None)
            return
        places = _places()
        at = _comes_round(self._before, places)
        self._before = places
        if len(self._came) < FEWEST_TO_LEARN:
            self._came.append(_Came(at, places, took_ns))
        if at is not None:
            self._codes.setdefault(at, Counter())[places[at].code] += 1
        if self._calls < FEWEST_TO_LEARN or 2 * self._short < self._calls:
            if at is not None and (around := self._of_unlike_calls()) is not None:
                self._settle(around)
            elif self._calls >= FEWEST_TO_LEARN:
                self._settle(None)
        elif self._calls >= MOST_CALLS:
            self._settle(self._outermost(self._calls))
        elif at is not None and since_ns >= LEARN_NS and (found := self._outermost(self._calls)):
            self._settle(found)

    def _settle(self, around: "_Place | None") -> None:
        self._decided = True
        self._before, self._came, self._codes = [], [], {}
        self._around = None if around is None else around.code

    def _outermost(self, most_calls: float) -> _Place | None:
        """The function whose rounds came often enough, and have more than one call each."""
        times = 0
        for at, codes in sorted(self._codes.items()):
            here = codes.total()
            times += here  # where one around it comes round, so does it
            if here >= FEWEST_ROUNDS and FEWEST_CALLS <= self._calls / times <= most_calls:
                return _Place(at, codes.most_common(1)[0][0])
        return None

    def _of_unlike_calls(self) -> _Place | None:
        """The same of calls that last, where those of a round are not alike: by where they are
        made, or by what the first one takes."""
        if (around := self._outermost(MOST_LONG_CALLS)) is None:
            return None
        depth, firsts, others = around.depth, list[int](), list[int]()
        for one in self._came:
            (firsts if one.at is not None and one.at <= depth else others).append(one.took_ns)
        if not firsts or not others:
            return None
        first_ns, other_ns = _median(firsts), _median(others)
        unlike = max(first_ns, other_ns) >= DIFFERENT_RATIO * min(first_ns, other_ns)
        sites = {one.places[depth].instruction for one in self._came if len(one.places) > depth}
        return around if unlike or len(sites) > 1 else None

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


def _places() -> list[_Above]:
    """The own functions above, outermost first."""
    found: list[_Above] = []
    frame: FrameType | None = sys._getframe(3)
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        if is_own(frame.f_code.co_filename):
            found.append(_Above(frame.f_code, frame.f_lasti, _mark(frame)))
        frame = frame.f_back
    return found[::-1]


def _comes_round(before: list[_Above], now: list[_Above]) -> int | None:
    """The outermost function that was entered anew since the call before, or goes round."""
    for at, (old, new) in enumerate(zip(before, now, strict=False)):
        if old.code is not new.code:
            return None
        if new.entered or new.instruction < old.instruction:
            return at
        if new.instruction > old.instruction:
            return None
    return None
