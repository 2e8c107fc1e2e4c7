"""Turns of the program's own loops and calls of its own functions, where nothing else marks steps.

A solver, a simulation or a scoring pipeline has no optimizer, module or loader that a hook could
hear of. Its step is what comes round: a loop of its own code, or a function that something else
calls again and again. From Python 3.12 on the interpreter tells of both (``sys.monitoring``), code
by code. Asked about are those codes alone that the main thread was seen in, and in them no place
that is passed more than a thousand times a second, so that nothing of it is felt.

What comes round is known by counts and times: it goes on, regularly and for a while, and of several
the outermost is taken (:mod:`pinchpoint.capture.process.rhythms`).
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import cycle, repeat
from types import CodeType
from typing import Any

from pinchpoint.capture.process.rhythms import KEPT, LOOK_NS, SHORTEST_NS, Rhythm, choose
from pinchpoint.capture.samples.own_code import is_own
from pinchpoint.capture.samples.sampler import OURS, times_of
from pinchpoint.capture.samples.stacks import Place, import_roots, line_of, relative
from pinchpoint.inside.interpreter_tools import LOOPS, Tool, has_lock, take

MOST_CODES = 64  # that are asked about; a stack has ten of the program's own
# Passes of a place, 0.5 µs each, and the shortest time between them at which it is heard of on. A
# host that is ahead of its device makes tens of turns before it waits for the first one.
JUDGED = ((32, SHORTEST_NS // 20), (1000, SHORTEST_NS))
MOST_ELSEWHERE = 1000  # passes by other threads, which are none of its rounds
LEAST_ON_CORE_RATIO = 0.1  # of the thread: a loop that sleeps or polls waits for the work of others
TASKS = 0x80 | 0x200  # CO_COROUTINE, CO_ASYNC_GENERATOR: several of one kind take turns
_CALL = -1  # in place of a loop's head: the function was called


class _Rounds:
    """How often, and when, the program came to a place of its own."""

    def __init__(self, code: CodeType, head: int, depth: int) -> None:
        self.code, self.head, self.depth = code, head, depth
        self.count = self.elsewhere = 0
        self.first_ns = 0
        self.times_ns: deque[int] = deque(maxlen=KEPT)
        self.at: set[int] = set()  # where the frame stands when it is told

    def forget(self) -> None:
        """What came so far was disturbed."""
        self.count, self.elsewhere = 0, 0
        self.times_ns.clear()


class OwnLoops:
    """Finds what comes round in the main thread; then calls ``turned`` each time that it does."""

    def __init__(self, turned: Callable[[], None]) -> None:
        self.place: tuple[str, int, str] | None = None  # file, line and function of the steps
        self.kind: str | None = None  # loop or call
        self.changed = False  # the next turn is the first one of something else than before
        self._turned = turned
        self._tool: Tool | None = None
        self._began = self.over = False  # over: for good
        self._thread = threading.main_thread().ident or 0
        self._codes: dict[CodeType, int] = {}  # asked about, and how deep they are
        self._rounds: dict[tuple[CodeType, int], _Rounds] = {}
        self._chosen: _Rounds | None = None
        self._before: _Rounds | None = None  # was chosen, and came no more
        self._since_ns = self._soon_until_ns = 0
        self._on_core: tuple[int, dict[int, int]] = (0, {})

    @property
    def learns(self) -> bool:
        """Whether it is listening, and has not chosen yet."""
        return self._tool is not None and self._chosen is None

    @property
    def chosen(self) -> bool:
        """Whether it knows what comes round."""
        return self._chosen is not None

    @property
    def soon(self) -> bool:
        """Whether that is soon known, or is and the next turn is due."""
        return time.perf_counter_ns() < self._soon_until_ns

    def look(self, stack: Sequence[Place], least_ns: int = 0) -> None:
        """Where the main thread is now, innermost first: ask about that, and choose if it is time
        to, which it is for what has come round for so long."""
        self._begin()
        if self._tool is None:
            return
        self._ask_about([code for code, _ in reversed(stack)])
        now_ns = time.perf_counter_ns()
        rounds = [one for one in tuple(self._rounds.values()) if one.count]
        rhythms = [_rhythm(one) for one in rounds]
        choice = choose(rhythms, now_ns, now_ns - self._since_ns)
        self._soon_until_ns = now_ns + LOOK_NS if choice.soon else 0
        lasted_ns = 0 if choice.at is None else now_ns - rhythms[choice.at].first_ns
        if choice.at is not None and lasted_ns >= least_ns and self._works():
            self._soon_until_ns = rhythms[choice.at].silent_ns
            self._settle(rounds[choice.at])

    def held_up(self) -> None:
        """Something of ours made the rounds so far longer than they are."""
        if not self.learns:
            return
        for one in tuple(self._rounds.values()):
            one.forget()
        self._begin_anew()

    def lost(self) -> None:
        """What was chosen comes no more: look for something else, unless it comes again first."""
        chosen, self._chosen = self._chosen, None
        if chosen is None or self._tool is None:
            return
        self._before, self._codes, self._rounds = chosen, {}, {}
        self._begin_anew()
        self._ask_about([chosen.code])

    def forget(self) -> None:
        """What was chosen before is no part of what is looked for."""
        self._before = None

    def give_up(self) -> None:
        """Look no more; what was found goes on."""
        if self._chosen is None:
            self.end()

    def end(self) -> None:
        """Hear no more, and never again."""
        self.over = True
        tool, self._tool = self._tool, None
        if tool is not None:
            tool.end(_events(tool), tuple(self._codes))

    # Which codes are asked about

    def _begin(self) -> None:
        if self._began or self.over or not has_lock():
            return
        self._began = True
        self._tool = take(LOOPS, self.end)
        if self._tool is not None:
            self._begin_anew()

    def _begin_anew(self) -> None:
        self._since_ns = time.perf_counter_ns()
        self._on_core = self._since_ns, _on_cores()
        tool = self._tool
        if tool is None:
            return
        listeners = self._listeners(tool.monitoring.DISABLE)
        for event, heard in zip(_events(tool), listeners, strict=True):
            tool.listen(event, heard)

    def _ask_about(self, codes: Iterable[CodeType]) -> None:
        """Outermost first."""
        tool = self._tool
        if tool is None:
            return
        jump, start = _events(tool)
        own = [code for code in codes if is_own(code.co_filename)]
        for depth, code in enumerate(own):
            if code in self._codes or len(self._codes) >= MOST_CODES or code.co_flags & TASKS:
                continue
            self._codes[code] = depth
            try:
                tool.ask_in(code, jump | start)
            except Exception:  # an interpreter with code that it cannot tell of: it does without
                self.end()
                return

    # What is heard while it learns

    def _listeners(self, disable: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Of jumps and of calls. They run in the program: nothing may escape from them."""

        def came(code: CodeType, head: int) -> Any:
            try:
                return None if self._came(code, head, sys._getframe(2).f_lasti) else disable
            except Exception:  # the user's program comes first
                return disable

        def jumped(code: CodeType, offset: int, destination: int) -> Any:
            return disable if destination > offset else came(code, destination)

        def called(code: CodeType, offset: int) -> Any:
            return came(code, _CALL)

        return jumped, called

    def _came(self, code: CodeType, head: int, at: int) -> bool:
        """Take note of it; whether to hear of this place again."""
        before, mine = self._before, threading.get_ident() == self._thread
        if mine and before is not None and code is before.code and head == before.head:
            self._chosen, self._before = before, None
            self._listen_to(before)
            self._turned()
            return True
        rounds = self._rounds.get((code, head))
        if rounds is None:
            rounds = _Rounds(code, head, self._codes.get(code, 0))
            self._rounds[code, head] = rounds
        if not mine:
            rounds.elsewhere += 1
            return rounds.elsewhere < MOST_ELSEWHERE
        now_ns = time.perf_counter_ns()
        if not rounds.count:
            rounds.first_ns = now_ns
        rounds.at.add(at)
        rounds.count += 1
        rounds.times_ns.append(now_ns)
        for passes, shortest_ns in JUDGED:
            if rounds.count >= passes and now_ns - rounds.first_ns < rounds.count * shortest_ns:
                rounds.forget()
                return False
        return True

    def _works(self) -> bool:
        """Whether the thread is at work, and other threads of Python are not more so: a loop that
        takes in what others computed is recorded with them. True where the system does not tell."""
        (since_ns, before), now = self._on_core, _on_cores()
        if self._thread not in before or self._thread not in now:
            return True
        lasted_ns = time.perf_counter_ns() - since_ns
        mine_ns = now.pop(self._thread) - before[self._thread]
        others_ns = sum(ns - before.get(thread, 0) for thread, ns in now.items())
        return mine_ns >= max(LEAST_ON_CORE_RATIO * lasted_ns, others_ns)

    # What is heard once it has chosen

    def _settle(self, rounds: _Rounds) -> None:
        code, head = rounds.code, rounds.head
        self.kind = "call" if head == _CALL else "loop"
        line = code.co_firstlineno if head == _CALL else line_of(code, head)
        self.place = relative(code.co_filename, import_roots()), line, code.co_qualname
        self.changed, self._before = self._before is not None, None
        self._chosen = rounds
        self._listen_to(rounds)

    def _listen_to(self, rounds: _Rounds) -> None:
        """To nothing but these."""
        tool = self._tool
        if tool is None:
            return
        jump, start = _events(tool)
        wanted = start if rounds.head == _CALL else jump
        self._rounds = {}
        with suppress(Exception):  # the user's program comes first
            for code in tuple(self._codes):
                mine = code is rounds.code
                tool.ask_in(code, wanted if mine else 0)
            self._codes = {rounds.code: rounds.depth}
            for event in (jump, start):
                heard = self._turns(2 + (event == jump)) if event == wanted else None
                tool.listen(event, heard)

    def _turns(self, arguments: int) -> Callable[..., Any]:
        """What the interpreter calls at each turn, with so many arguments.

        A frame of ours around ``turned`` would stand open in a recording that it begins: the
        interpreter tells nobody how a function ends that it calls for an event. So there is none:
        this is made of functions in C, the last of which (``sys.call_tracing``) has what it calls
        told of as ever. ``max`` asks for the key of each argument, and the first one is the turn.
        """
        turns = map(sys.call_tracing, repeat(self._turn), repeat(()))
        keys = map(next, cycle((turns, *(repeat(0) for _ in range(arguments - 1)))))
        return partial(max, key=partial(next, keys))

    def _turn(self) -> int:
        """The program came to the place, or made another jump in the same function."""
        try:
            chosen = self._chosen
            if chosen is None or threading.get_ident() != self._thread:
                return 0
            if chosen.head != _CALL and sys._getframe(1).f_lasti not in chosen.at:
                self._hear_jumps(chosen)
            else:
                self._turned()
        except Exception:  # the user's program comes first
            self.end()
        return 0

    def _hear_jumps(self, chosen: _Rounds) -> None:
        """Until the next turn, ask for no more of any other jump."""
        tool = self._tool
        if tool is None:
            return
        jump, disable = tool.monitoring.events.JUMP, tool.monitoring.DISABLE
        turns = self._turns(3)

        def jumped(code: CodeType, offset: int, destination: int) -> Any:
            try:
                if destination != chosen.head or destination > offset:
                    return disable
                chosen.at.add(sys._getframe(1).f_lasti)
                tool.listen(jump, turns)
                if threading.get_ident() == self._thread:
                    self._turned()
            except Exception:  # the user's program comes first
                return disable
            return None

        tool.listen(jump, jumped)


def _events(tool: Tool) -> tuple[int, int]:
    return tool.monitoring.events.JUMP, tool.monitoring.events.PY_START


def _rhythm(rounds: _Rounds) -> Rhythm:
    return Rhythm(rounds.depth, rounds.count, rounds.first_ns, tuple(rounds.times_ns))


def _on_cores() -> dict[int, int]:
    """Time so far that the threads of Python, but ours, were on a core or ready to run, in
    nanoseconds; without those of which the system does not tell."""
    found = {}
    for thread in threading.enumerate():
        on_core, queued = times_of(thread.native_id)
        if on_core is not None and not thread.name.startswith(OURS):
            found[thread.ident or 0] = on_core + (queued or 0)
    return found
