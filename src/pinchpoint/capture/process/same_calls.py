"""Functions that hold much of a step and are called with the same arguments again.

Once in a run, after the windows, looks at the thread of the steps say which functions of the
program, and which of libraries that these call, it is in for a good part of its time. The calls of
these are heard of for a few steps: what they were given, what they answered, by checksums, how long
they took and who called them. Nothing is kept of a value but whether two were alike.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Hashable, Iterator
from types import CodeType, FrameType
from typing import Any

from pinchpoint.capture.process.contents import Content, Contents, Untold, states
from pinchpoint.capture.process.hear_calls import Hearing, hear_calls
from pinchpoint.capture.samples.own_code import is_own
from pinchpoint.capture.samples.stacks import import_roots, line_of, relative
from pinchpoint.frozen import dataclass

STEPS = 6  # in turn: what stays for fewer may be a round of steps, such as of micro-batches
FEWEST_STEPS = 3  # of which something is said
MOST_FUNCTIONS = 16
LEAST_RATIO = 0.02  # of the time of the thread of the steps; a cause is told from more on
MOST_CALLS = 48  # of one function in one step, of which values are compared; the rest are counted
MOST_COUNTED = 50_000  # calls of one function in all: each costs the program half a microsecond
MOST_NS = 400_000_000  # of the program's time, in all
# Hardly a function has a name of its own in these, or is called by its arguments alone.
_ODD = 0x20 | 0x80 | 0x200  # flags of code: generators, coroutines, both (as ``inspect`` has them)
_VARARGS, _VARKEYWORDS = 0x04, 0x08
_NAMELESS = ("<module>", "<lambda>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")
_OTHERS = ("/torch/", "/pinchpoint/", "/importlib/", "<")  # files: modules have a look of their own

Us = dict[tuple[CodeType, ...], int]  # microseconds by stack, innermost first


@dataclass
class _Open:
    """A call that has not returned."""

    frame: int
    function: "_Function"
    arguments: dict[str, Any]
    given: Content | None
    why: str
    states: Hashable = ()  # of objects among its arguments
    own_ns: int = 0  # of ours, when it began
    began_ns: int = 0


class _Function:
    """What was heard of one function."""

    def __init__(self, code: CodeType, us: int) -> None:
        self.code, self.us = code, us
        self.calls = self.timed = self.ns = self.told = self.numbers = 0
        self.in_step = 0
        self.first_calls = self.new = 0  # of those told: in the first step; later, not seen before
        self.answers: dict[Hashable, Hashable] = {}
        self.alike, self.varied, self.unread = True, False, False
        self.tiny_ratio = 0.0
        self.tiny_of = ""
        self.why: Counter[str] = Counter()
        self.callers: Counter[tuple[CodeType, int]] = Counter()
        self.inside: Counter[int] = Counter()  # calls inside of calls of another one

    def heard(self, given: Content, answer: Content, *, first_step: bool) -> None:
        """A call of which both are known."""
        self.told += 1
        self.first_calls += first_step
        self.unread |= given.unread
        if given.word not in self.answers:
            self.answers[given.word] = answer.word
            self.new += not first_step
        elif self.answers[given.word] != answer.word:
            self.alike = False
        self.numbers = max(self.numbers, answer.numbers)
        self.varied |= answer.varied

    def tiny(self, content: Content | None, of: str) -> None:
        """Note what has most numbers next to zero."""
        if content is not None and content.tiny_ratio > self.tiny_ratio:
            self.tiny_ratio, self.tiny_of = content.tiny_ratio, of


class SameCalls:
    """Hears of calls for some steps of one thread; ``note`` is what it found, None until then."""

    def __init__(self) -> None:
        self._functions: dict[int, _Function] = {}
        self._open: list[_Open] = []
        self._contents = Contents()
        self._thread = self._step = 0
        self._hearing: Hearing | None = None
        self._own_ns = self._elapsed_ns = 0
        self._since_ns = (0, 0)  # the clock and the cost, when the present step began
        self.note: dict[str, Any] | None = None

    @property
    def cost_ns(self) -> int:
        """Of the program's time, until now."""
        return self._own_ns + (self._hearing.cost_ns if self._hearing else 0)

    @property
    def listens(self) -> bool:
        """Whether steps are watched now."""
        return self._hearing is not None

    def begin(self, seen: Us) -> None:
        """Listen from now on, in this thread, if some function holds enough of its time."""
        self._thread = threading.get_ident()
        began_ns = time.perf_counter_ns()
        self._functions = {id(one.code): one for one in _worth_hearing(seen)}
        if not self._functions:
            self.note = {"steps": 0, "functions": [], "why": ""}
            return
        try:
            codes = [one.code for one in self._functions.values()]
            self._hearing = hear_calls(codes, self._entered, self._left)
        except Exception as error:  # the program comes first
            self.note = {"steps": 0, "functions": [], "why": str(error).splitlines()[0]}
        now_ns = time.perf_counter_ns()
        self._own_ns += now_ns - began_ns
        self._since_ns = now_ns, self.cost_ns

    def step_ends(self) -> None:
        """Another of the watched steps has ended."""
        self._step += 1
        now_ns, (then_ns, cost_ns) = time.perf_counter_ns(), self._since_ns
        self._elapsed_ns += now_ns - then_ns - (self.cost_ns - cost_ns)
        self._since_ns = now_ns, self.cost_ns
        for one in self._functions.values():
            one.in_step = 0
        if self._step >= STEPS or self.cost_ns > MOST_NS:
            self.end()

    def end(self) -> None:
        """Listen no more; from enough steps there is a note."""
        hearing, self._hearing = self._hearing, None
        if hearing is None:
            return
        complete, self._open = hearing.end(), []
        self._own_ns += hearing.cost_ns
        if self._step >= FEWEST_STEPS and complete:
            step_ns = self._elapsed_ns // self._step
            functions = list(self._notes())
            self.note = {"steps": self._step, "functions": functions, "why": "", "step_ns": step_ns}
        else:
            why = "too many calls to hear of" if not complete else "it ended before"
            self.note = {"steps": self._step, "functions": [], "why": why}
        self._functions = {}

    # What is heard

    def _entered(self, frame: FrameType) -> bool:
        one = self._functions.get(id(frame.f_code))
        if one is None or threading.get_ident() != self._thread:
            return True
        one.calls += 1
        one.in_step += 1
        if one.in_step <= MOST_CALLS and self.cost_ns <= MOST_NS:
            self._open_call(one, frame)
        return one.calls < MOST_COUNTED

    def _open_call(self, one: _Function, frame: FrameType) -> None:
        began_ns = time.perf_counter_ns()
        opened = _Open(id(frame), one, {}, None, "")
        try:
            one.callers[_caller(frame)] += 1
            one.inside.update({id(o.function.code) for o in self._open})
            opened.arguments = _arguments(frame)
            opened.given = self._contents.of(opened.arguments)
            opened.states = states(opened.arguments.values())
        except Untold as why:
            opened.why = str(why)
        except Exception:  # subclasses with operators of their own: the program comes first
            opened.why = "its arguments cannot be looked into"
        self._open = [o for o in self._open if o.frame != id(frame)]
        self._open.append(opened)
        opened.began_ns = time.perf_counter_ns()
        self._own_ns += opened.began_ns - began_ns
        opened.own_ns = self.cost_ns

    def _left(self, frame: FrameType, value: Any) -> bool:
        now_ns = time.perf_counter_ns()
        if threading.get_ident() != self._thread:
            return True
        at = next((n for n, o in enumerate(self._open) if o.frame == id(frame)), None)
        if at is None or self._open[at].function.code is not frame.f_code:
            of = self._functions.get(id(frame.f_code))
            return of is None or of.calls < MOST_COUNTED
        opened, self._open = self._open[at], self._open[:at]  # what is above it has ended by error
        one = opened.function
        one.timed += 1
        one.ns += now_ns - opened.began_ns - (self.cost_ns - opened.own_ns)
        try:
            self._compare(one, opened, value)
        except Untold as why:
            one.why[str(why)] += 1
        except Exception:
            one.why["what it gives cannot be looked into"] += 1
        self._own_ns += time.perf_counter_ns() - now_ns
        return True

    def _compare(self, one: _Function, opened: _Open, value: Any) -> None:
        one.tiny(opened.given, "given")
        answer = self._contents.of(value, result=True)
        one.tiny(answer, "answer")
        if opened.given is None:
            raise Untold(opened.why)
        if answer.arrays and any(value is given for given in opened.arguments.values()):
            raise Untold("it gives back what it was given")
        if opened.given.arrays and self._contents.of(opened.arguments).word != opened.given.word:
            raise Untold("it changes what it is given")
        if states(opened.arguments.values()) != opened.states:
            raise Untold("it changes an object that it is given")
        one.heard(opened.given, answer, first_step=self._step == 0)

    # What becomes of it

    def _notes(self) -> Iterator[dict[str, Any]]:
        roots = import_roots()
        heard = [one for one in self._functions.values() if one.calls]
        row_of = {id(one.code): row for row, one in enumerate(heard)}
        for one in heard:
            code = one.code
            if one.calls >= MOST_COUNTED:
                one.why["it is called too often to hear of each"] += one.calls
            caller = one.callers.most_common(1)[0][0] if one.callers else None
            inside = [row_of[of] for of, n in one.inside.items() if 2 * n > one.calls]
            yield {
                "function": [relative(code.co_filename, roots), code.co_firstlineno, code.co_name],
                "caller": None if caller is None else _spelt(caller, roots),
                "own": is_own(code.co_filename),
                "calls": one.calls,
                "ns": round(one.ns / max(one.timed, 1) * one.calls),
                "told": one.told,
                "distinct": len(one.answers),
                "later": one.told - one.first_calls,
                "new": one.new,
                "alike": one.alike,
                "answers": len(set(one.answers.values())),
                "numbers": one.numbers,
                "varied": one.varied,
                "unread": one.unread,
                "inside": inside,
                "tiny_ratio": one.tiny_ratio,
                "tiny_of": one.tiny_of,
                "why": one.why.most_common(1)[0][0] if one.why else "",
                "untold": one.why.total(),
            }


def _worth_hearing(seen: Us) -> list[_Function]:
    """Functions that have most of the time, but for those that run now: they make the steps."""
    us: dict[int, list[Any]] = {}
    for stack, took in seen.items():
        for code in _callable(stack):
            us.setdefault(id(code), [code, 0])[1] += took
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        us.pop(id(frame.f_code), None)
        frame = frame.f_back
    least = LEAST_RATIO * sum(seen.values())
    found = [_Function(code, took) for code, took in us.values() if took >= least]
    return sorted(found, key=lambda one: -one.us)[:MOST_FUNCTIONS]


def _callable(stack: tuple[CodeType, ...]) -> set[CodeType]:
    """The program's functions on a stack, and the one of a library that each of them has called."""
    found = set()
    own = [is_own(code.co_filename) for code in stack]
    for at, code in enumerate(stack):
        called = own[at] or (own[at + 1 : at + 2] == [True] and not _is_other(code.co_filename))
        if called and not code.co_flags & _ODD and code.co_name not in _NAMELESS:
            found.add(code)
    return found


def _is_other(file: str) -> bool:
    return any(part in file or file.startswith(part) for part in _OTHERS)


def _arguments(frame: FrameType) -> dict[str, Any]:
    """By name, as they are at the beginning."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & _VARARGS) + bool(code.co_flags & _VARKEYWORDS)
    names, values = code.co_varnames[:count], frame.f_locals
    return {name: values[name] for name in names if name in values}


def _caller(frame: FrameType) -> tuple[CodeType, int]:
    """The line of the program that calls."""
    at = frame.f_back
    while at is not None and not is_own(at.f_code.co_filename):
        at = at.f_back
    return (at or frame).f_code, (at or frame).f_lasti


def _spelt(at: tuple[CodeType, int], roots: list[str]) -> list[Any]:
    code, offset = at
    return [relative(code.co_filename, roots), line_of(code, offset), code.co_name]
