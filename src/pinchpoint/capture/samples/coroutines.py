"""Which coroutine an event loop sleeps for, while its thread stands in ``select``.

A coroutine that awaits ``asyncio.sleep`` is on no stack: the thread that runs its loop waits for
the next timer or message. Where the next timer is such a sleep, its coroutines are put on top of
the thread's own stack, innermost first; ``asyncio.sleep`` itself where they ask for something
again and again: in ``while`` with a condition, or under an ``if`` in a loop that has none. What
sleeps in any other loop may send the requests of a test, one after the other.
"""

import ast
import sys
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from types import CodeType
from typing import Any

from pinchpoint.capture.samples.stacks import Place, line_of

_RUNS = "_run_once"
_NEAR_THE_TOP = 3  # frames: a selector's ``select`` is called there
MOST_TIMERS = 64  # that are looked at, the first of a heap: sleeps of other clients come later
MOST_TASKS = 512
LARGEST_BYTES = 1 << 19  # of a source file, which takes 0.1 s to be parsed
MOST_DEPTH = 32  # of coroutines that await each other
# A loop that is woken more seldom waits for messages: a timer so far away is no part of a step.
MOST_AHEAD_S = 1.0
# All in one call of C each, so that no other thread runs meanwhile.
_COROUTINE = attrgetter("cr_code", "cr_frame.f_lasti", "cr_await")


def with_coroutine_asleep(thread: int, stack: list[Place]) -> list[Place]:
    """The stack of a thread, innermost first, below the coroutine that its event loop sleeps for;
    as it is where it runs none, or waits for something else."""
    asyncio: Any = sys.modules.get("asyncio")
    if asyncio is None or not any(code.co_name == _RUNS for code, _ in stack[:_NEAR_THE_TOP]):
        return stack
    try:
        return [*_sleeps(asyncio, thread), *stack]
    except Exception:  # its loop goes on meanwhile, and is none of ours
        return stack


def _sleeps(asyncio: Any, thread: int) -> list[Place]:
    tasks = [task for task in _tasks(asyncio) if task.get_loop()._thread_id == thread]
    if not tasks or len(tasks) > MOST_TASKS:
        return []
    loop = tasks[0].get_loop()
    timers = [one for one in loop._scheduled[:MOST_TIMERS] if not one.cancelled()]
    first = min(timers, key=lambda one: one.when(), default=None)
    if first is None or first.when() - loop.time() > MOST_AHEAD_S or not first._args:
        return []
    asleep = next((task for task in tasks if task._fut_waiter is first._args[0]), None)
    places = [] if asleep is None else _places(asleep.get_coro())
    if not places or places[0][0] is not asyncio.sleep.__code__:
        return []
    again = any(_asks_again(code, line_of(code, at)) for code, at in places[1:])
    return places if again else places[1:]


def _tasks(asyncio: Any) -> list[Any]:
    """All that are known to asyncio, of any loop (CPython 3.12 renamed the set)."""
    module = asyncio.tasks
    known = getattr(module, "_scheduled_tasks", None)
    return list(module._all_tasks if known is None else known)


def _places(coroutine: Any) -> list[Place]:
    """Where coroutines that await each other are, innermost first."""
    found: list[Place] = []
    while hasattr(coroutine, "cr_await") and len(found) < MOST_DEPTH:
        code, at, coroutine = _COROUTINE(coroutine)
        found.append((code, at))
    return found[::-1]


@lru_cache(maxsize=256)
def _asks_again(code: CodeType, line: int) -> bool:
    """Whether a line is in a loop that goes on until something is so."""
    path = Path(code.co_filename)
    if not path.is_file() or path.stat().st_size > LARGEST_BYTES:
        return False
    around = [
        node
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.While | ast.For | ast.AsyncFor | ast.If | ast.AsyncFunctionDef)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    for node in sorted(around, key=lambda one: -one.lineno):
        if isinstance(node, ast.If):
            continue
        asked = any(isinstance(one, ast.If) and one.lineno > node.lineno for one in around)
        return isinstance(node, ast.While) and (asked or not isinstance(node.test, ast.Constant))
    return False
