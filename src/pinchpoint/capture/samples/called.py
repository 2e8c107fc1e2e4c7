"""What calls of libraries are given where looks find the program at them.

A few looks at one call of the program's own text, as ``rng.choice(n, 512, replace=False)``, are
followed by a look at the variables that it names: what is called, of which class, and the kinds,
shapes and numbers that it is given; and, of later calls there, whether that was the same.
"""

import ast
import contextlib
import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, islice, pairwise, repeat
from operator import attrgetter, methodcaller
from types import CodeType
from typing import Any

from pinchpoint.capture.process.contents import Contents, Untold
from pinchpoint.capture.samples.expressions import (
    UNKNOWN,
    Written,
    begin_of,
    called_of,
    value_of,
    written_at,
)
from pinchpoint.capture.samples.given import content, described, file_at
from pinchpoint.capture.samples.instructions import doing
from pinchpoint.capture.samples.own_code import is_own
from pinchpoint.capture.samples.stacks import (
    Place,
    import_roots,
    line_of,
    relative,
    stack_of,
)

LOOKS_FIRST = 6  # at one call, before variables are looked at: fewer are a small part of any run
MOST_NOTES = 4  # of one call, each after twice as many looks as the one before
MOST_TRIES = 24  # of one call: the thread may have gone on before its variables are read
MOST_SPOTS = 24  # calls of which variables are looked at; one look takes 50 µs and what it reads
MOST_COUNTED = 4096  # different calls
_DEEPEST = 32  # frames between a call of the program and where the thread is
_MOST_OWN = 4  # of them the program's, innermost first
_CALL_BACK = ("/torch/", "/jax/", "/flax/")  # packages whose calls of the program are no detour
_CO_OPTIMIZED = 1  # a function, whose variables have a copy of their own as a dict
_READS_ITS_OWN = ("locals", "vars", "exec", "eval")  # with which a program may hold that dict
_LONGEST_NAME, _LONGEST_TEXT = 120, 40


@dataclass
class _Spot:
    code: CodeType  # kept, so that its number is no other's
    looks: int = 0
    next: int = LOOKS_FIRST
    written: Written | None = None
    tries: int = 0
    notes: int = 0
    first: dict[str, Any] | None = None
    last: dict[str, Any] | None = None
    words: dict[str, Any] = field(default_factory=dict)  # of the look before, by argument
    compared: int = 0
    alike: dict[str, int] = field(default_factory=dict)  # looks at which an argument was the same


class Calls:
    """Notes of a process. ``look`` at each regular look."""

    def __init__(self) -> None:
        self._spots: dict[tuple[int, int], _Spot] = {}
        self._at: dict[int, list[tuple[int, int]]] = {}  # calls of each thread at its last look
        self._tried = 0
        self._contents = Contents()

    def look(self, thread: int, stack: Sequence[Place]) -> None:
        """A thread has this stack, innermost frame first."""
        found = _calls_of_libraries(stack)
        before, self._at[thread] = self._at.get(thread, ()), [key for key, _ in found]
        for key, at in found:
            self._look(thread, key, at, another=key not in before)

    def _look(self, thread: int, key: tuple[int, int], at: Place, *, another: bool) -> None:
        spot = self._spots.get(key)
        if spot is None:
            if len(self._spots) >= MOST_COUNTED:
                return
            spot = self._spots[key] = _Spot(at[0])
        spot.looks += 1
        # A second look at one call tells nothing new: the thread has to have been elsewhere.
        due = spot.looks >= spot.next and spot.notes < MOST_NOTES and spot.tries < MOST_TRIES
        if not due or (spot.notes and not another):
            return
        if not spot.tries:
            if self._tried >= MOST_SPOTS:
                return
            self._tried += 1
            with contextlib.suppress(Exception):  # of a file that is no text, say
                spot.written = written_at(*at)
        spot.tries += 1
        if spot.written is None:
            spot.tries = MOST_TRIES
            return
        with contextlib.suppress(Exception):  # the user's program comes first
            if self._note(spot, thread, at):
                spot.notes += 1
                spot.next = 2 * spot.looks

    def _note(self, spot: _Spot, thread: int, at: Place) -> bool:
        """Whether the thread was still there."""
        assert spot.written is not None
        names = _names(thread, at, spot.written.names)
        if names is None:
            return False
        called, given = _given(spot.written, names)
        if not called:
            return True
        texts, onto = _texts(spot.written), _onto(spot.written)
        note = {
            "called": called[:_LONGEST_NAME],
            "given": [
                described(name, value)
                | ({"text": texts[name]} if name in texts else {})
                | ({"onto": True} if name == onto else {})
                for name, value in given.items()
            ],
        }
        spot.first = spot.first or note
        spot.last = note
        self._compare(spot, given)
        return True

    def _compare(self, spot: _Spot, given: dict[str, Any]) -> None:
        words = {}
        for name, value in given.items():
            with contextlib.suppress(Untold):
                words[name] = (content(value, self._contents), file_at(value))
        if spot.words:
            spot.compared += 1
            for name, word in words.items():
                if spot.words.get(name) == word:
                    spot.alike[name] = spot.alike.get(name, 0) + 1
        spot.words = words

    def document(self) -> list[dict[str, Any]]:
        """For the run folder: each with its line, what is called there, and what it was given."""
        roots = import_roots()
        return [
            {
                "at": [relative(spot.code.co_filename, roots), line_of(spot.code, at), name],
                "doing": doing(spot.code, begin_of(spot.code, at)),
                "looks": spot.looks,
                "compared": spot.compared,
                "called": spot.last["called"],
                "given": [
                    one
                    | {
                        "alike": spot.alike.get(one["name"], 0),
                        "first_shape": _first(spot, one["name"], "shape"),
                        "first_of_shape": _first(spot, one["name"], "of_shape"),
                    }
                    for one in spot.last["given"]
                ],
            }
            for (_, at), spot in list(self._spots.items())
            if spot.last is not None and (name := spot.code.co_name)
        ]


def _first(spot: _Spot, name: str, what: str) -> list[int]:
    given = spot.first["given"] if spot.first else []
    return next((one.get(what, []) for one in given if one["name"] == name), [])


def _texts(written: Written) -> dict[str, str]:
    """Texts that stand in the program's own call, as ``"ij,jk->ik"``."""
    return {
        name: node.value[:_LONGEST_TEXT]
        for name, node in _arguments(written.node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _arguments(node: ast.expr) -> list[tuple[str, ast.expr]]:
    if not isinstance(node, ast.Call):
        return []
    by_name = [(one.arg or "**", one.value) for one in node.keywords]
    return [*((str(n), one) for n, one in enumerate(node.args)), *by_name]


def _onto(written: Written) -> str:
    """The argument that the answer takes the place of: ``seen = np.append(seen, new)``, or the
    first of a list of them."""
    if written.onto is None:
        return ""
    target = ast.unparse(written.onto)
    for name, node in _arguments(written.node):
        listed = isinstance(node, ast.List | ast.Tuple) and node.elts
        if ast.unparse(listed[0] if listed else node) == target:
            return name
    return ""


def _given(written: Written, names: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The full name of what is called, and by name or position what it is given."""
    node, given = written.node, {}
    if isinstance(node, ast.Call):
        called, owner = called_of(node.func, names)
        if owner is not UNKNOWN:
            given["self"] = owner
        for n, one in enumerate(node.args):
            given["*" if isinstance(one, ast.Starred) else str(n)] = value_of(one, names)
        for keyword in node.keywords:
            given[keyword.arg or "**"] = value_of(keyword.value, names)
    elif isinstance(node, ast.Subscript):
        owner = value_of(node.value, names)
        called = "" if owner is UNKNOWN else f"{_kind(owner)}.__getitem__"
        given |= {"self": owner, "0": value_of(node.slice, names)}
    else:
        called = "@"
        given |= {"0": value_of(node.left, names), "1": value_of(node.right, names)}
    if written.in_parts:
        given["[?]"] = UNKNOWN
    if written.index is not None:
        given |= _index(written.index, names)
    if written.times is not None:
        given["@"] = value_of(written.times, names)
    return called, given


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _index(node: Any, names: dict[str, Any]) -> dict[str, Any]:
    """What is taken of the answer: ``[:k]`` as ``[:]``, ``[-k:]`` as ``[-:]``, one as ``[]``."""
    if not isinstance(node, ast.Slice):
        return {"[]": value_of(node, names)}
    if node.step is not None:
        return {"[?]": UNKNOWN}
    low, high = node.lower, node.upper
    if low is None and high is not None:
        return {"[:]": value_of(high, names)}
    if high is None and isinstance(low, ast.UnaryOp) and isinstance(low.op, ast.USub):
        return {"[-:]": value_of(low.operand, names)}
    return {"[?]": UNKNOWN}


def _calls_of_libraries(stack: Sequence[Place]) -> list[tuple[tuple[int, int], Place]]:
    """Frames of the program that have called a library: the innermost one, and one that a library
    was called by which calls the program back, as a function is that is given to it."""
    own = [n for n, one in enumerate(stack[:_DEEPEST]) if is_own(one[0].co_filename)]
    found = own[:1]
    for inner, outer in pairwise(own[:_MOST_OWN]):
        file, called_back = stack[outer - 1][0].co_filename, outer > inner + 1
        named = stack[inner][0].co_name != "<lambda>"
        if (called_back and not any(one in file for one in _CALL_BACK)) or not named:
            found.append(outer)
            break
    return [((id(stack[n][0]), stack[n][1]), stack[n]) for n in found]


def _names(thread: int, at: Place, wanted: set[str]) -> dict[str, Any] | None:
    """The variables of a thread's frame that is at a place; None if it has gone on."""
    code = at[0]
    if any(name in code.co_names for name in _READS_ITS_OWN):
        return None
    deep = next((n for n, one in enumerate(stack_of(thread)) if one == at), None)
    if deep is None:
        return None
    seen, where, variables, outside, builtin = _frame(thread, deep)
    function = bool(code.co_flags & _CO_OPTIMIZED)
    try:
        if seen is not code or where != at[1]:
            return None
        known = (variables, outside, builtin)
        return {n: next(one[n] for one in known if n in one) for n in wanted if _in(n, known)}
    finally:
        # Until Python 3.12 the frame keeps this dict, and with it what was in it by now.
        if function and isinstance(variables, dict):
            variables.clear()


def _in(name: str, known: Sequence[Any]) -> bool:
    return any(name in one for one in known)


def _frame(thread: int, deep: int) -> tuple[Any, int, Any, Any, Any]:
    """Code, instruction, variables, globals and builtins of a frame, all in one call of C without a
    collection of garbage, so that no other thread runs meanwhile and no frame is kept."""
    found: list[Any] = []
    call = methodcaller("__call__")
    frames: Any = islice(map(call, (gc.disable, sys._current_frames)), 1, 2)
    top = map(methodcaller("get", thread), frames)
    below: Any = accumulate(chain(top, repeat("f_back", deep)), getattr)
    parts = attrgetter("f_code", "f_lasti", "f_locals", "f_globals", "f_builtins")
    collects = gc.isenabled()
    try:
        found.extend(map(parts, islice(below, deep, deep + 1)))
    finally:
        if collects:
            gc.enable()
    code, at, variables, outside, builtin = found[0]
    return code, at, variables, outside, builtin
