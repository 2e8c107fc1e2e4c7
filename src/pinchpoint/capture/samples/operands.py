"""What lies in memory where looks find a thread taking rows: shape and strides of the array.

A few looks at one instruction, ``table[rows]`` or a library's own ``take``, are followed by one at
the variables of that frame. Nothing of them is kept but numbers.
"""

import contextlib
import dis
import gc
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter, methodcaller
from types import CodeType
from typing import Any

from pinchpoint.capture.samples.instructions import doing, instructions
from pinchpoint.capture.samples.stacks import Place, import_roots, line_of, relative

LOOKS_FIRST = 6  # at one instruction, before its frame's variables are looked at
MOST_SPOTS = 32  # instructions of which variables are looked at; a look takes 20 µs
MOST_COUNTED = 4096  # different instructions
_FAST = (
    "LOAD_FAST",
    "LOAD_FAST_BORROW",
    "LOAD_FAST_CHECK",
    "LOAD_DEREF",
    "LOAD_GLOBAL",
    "LOAD_NAME",
)
_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")
_CO_OPTIMIZED = 1  # a function, whose variables have a copy of their own as a dict
_READS_ITS_OWN = ("locals", "vars", "exec", "eval")  # with which a program may hold that dict


@dataclass(frozen=True)
class Spelling:
    """How an instruction names the array and what it takes of it: chains of attributes."""

    array: tuple[str, ...]
    index: tuple[str, ...]
    axis: int | str | None = 0  # the number, or the variable that has it


# Functions in which the libraries themselves take rows, with the names of their variables.
_OF_LIBRARIES = {
    ("numpy/_core/fromnumeric.py", "_wrapfunc"): Spelling(("obj",), ("args", "0"), "kwds"),
    ("numpy/core/fromnumeric.py", "_wrapfunc"): Spelling(("obj",), ("args", "0"), "kwds"),
    ("pandas/core/array_algos/take.py", "_take_nd_ndarray"): Spelling(
        ("arr",), ("indexer",), "axis"
    ),
}


class Operands:
    """Notes of a process. ``look`` at each regular look; ``notes`` by place in the end."""

    def __init__(self) -> None:
        self._looks: Counter[tuple[int, int]] = Counter()
        self._tried = 0
        self.notes: dict[Place, dict[str, Any]] = {}

    def look(self, thread: int, at: Place) -> None:
        """The innermost frame of a thread is there."""
        key = (id(at[0]), at[1])
        if len(self._looks) >= MOST_COUNTED and key not in self._looks:
            return
        self._looks[key] += 1
        if self._looks[key] != LOOKS_FIRST or self._tried >= MOST_SPOTS:
            return
        spelling = spelling_of(*at)
        if spelling is None:
            return
        self._tried += 1
        with contextlib.suppress(Exception):  # the user's program comes first
            note = _note(thread, at, spelling)
            if note is not None:
                self.notes[at] = note

    def document(self) -> list[dict[str, Any]]:
        """For the run folder: each with its line, and what that line is at there."""
        roots = import_roots()
        return [
            {
                "at": [relative(code.co_filename, roots), line_of(code, at), code.co_name],
                "doing": doing(code, at),
                **note,
            }
            for (code, at), note in list(self.notes.items())
        ]


def spelling_of(code: CodeType, at: int) -> Spelling | None:
    """None where the instruction takes nothing by an index, or not by names alone."""
    for (file, function), known in _OF_LIBRARIES.items():
        if code.co_name == function and code.co_filename.endswith(file):
            return known
    if not _may_take(code, at):
        return None
    found = instructions(code)
    number = next((n for n, one in enumerate(found) if one.offset == at), None)
    begins = None if number is None else _begins(found[number])
    if number is None or begins is None:
        return None
    one = found[number]
    takes = one.opname == "BINARY_SUBSCR" or (
        one.opname == "BINARY_OP" and one.argrepr in ("[]", "")
    )
    first = next(
        (
            n
            for n in range(number - 1, -1, -1)
            if found[n].opname in _FAST and _begins(found[n]) == begins
        ),
        None,
    )
    if first is None:
        return None
    array, after = _chain(found, first)
    index, rest = _chain(found, after) if found[after].opname in _FAST else ((), after)
    if not index:
        return None
    if takes:
        return Spelling(array, index) if all(map(_of_whole_rows, found[rest:number])) else None
    if one.opname.startswith(("CALL", "PRECALL")) and array[-1] in _TAKE:
        axis = found[rest].argval if found[rest].opname == "LOAD_CONST" else None
        return Spelling(array[:-1], index, axis) if isinstance(axis, int) else None
    return None


def _may_take(code: CodeType, at: int) -> bool:
    """By the byte alone: to take a large function apart holds the program up for milliseconds."""
    name = dis.opname[code.co_code[at]] if at < len(code.co_code) else ""
    if name == _SUBSCRIPT:
        return True
    return name.startswith(("CALL", "PRECALL")) and any(one in code.co_names for one in _TAKE)


_TAKE = ("take", "index_select")
_SUBSCRIPT = "BINARY_OP" if sys.version_info >= (3, 14) else "BINARY_SUBSCR"


def _of_whole_rows(one: Any) -> bool:
    """Whether it is part of ``, :`` or ``, ...`` behind the numbers of rows."""
    if one.opname == "LOAD_CONST":
        return one.argval in (None, Ellipsis, slice(None))
    return one.opname in ("BUILD_SLICE", "BUILD_TUPLE", *_SKIPPED)


def _begins(one: Any) -> tuple[int, int] | None:
    where = one.positions
    return None if where is None else (where.lineno, where.col_offset)


def _chain(found: Any, first: int) -> tuple[tuple[str, ...], int]:
    """The names from a load on, and the number of the instruction that follows."""
    names, n = [str(found[first].argval)], first + 1
    while n < len(found) and (found[n].opname in _ATTRIBUTE or found[n].opname in _SKIPPED):
        if found[n].opname in _ATTRIBUTE:
            names.append(str(found[n].argval))
        n += 1
    return tuple(names), min(n, len(found) - 1)


_SKIPPED = ("CACHE", "PUSH_NULL", "NOP", "EXTENDED_ARG")


def _note(thread: int, at: Place, spelling: Spelling) -> dict[str, Any] | None:
    code = at[0]
    function = bool(code.co_flags & _CO_OPTIMIZED)
    if not function or any(name in code.co_names for name in _READS_ITS_OWN):
        return None
    seen, where, variables = _variables(thread)
    try:
        if seen is not code or where != at[1]:
            return None  # it has gone on
        names = {**code_globals(thread, code), **dict(variables)}
    finally:
        # Until Python 3.12 the frame keeps this dict, and with it what was in it by now.
        if isinstance(variables, dict):
            variables.clear()
    array, index = _value(names, spelling.array), _value(names, spelling.index)
    axis: Any = spelling.axis
    if isinstance(axis, str):
        axis = names.get(axis)
        axis = axis.get("axis") if isinstance(axis, dict) else axis
    shape, strides, itemsize = _layout(array)
    of_index = _layout(index)[0]
    if shape is None or of_index is None or not isinstance(axis, int) or not _counts(index):
        return None
    return {
        "name": ".".join(spelling.array),
        "shape": shape,
        "strides_bytes": strides,
        "item_bytes": itemsize,
        "axis": axis % max(len(shape), 1),
        "taken": of_index,
    }


def _variables(thread: int) -> tuple[Any, int, Any]:
    """Code, instruction and variables of a thread's innermost frame, all in one call of C without
    a collection of garbage, so that no other thread runs meanwhile and no frame is kept."""
    found: list[Any] = []
    call = methodcaller("__call__")
    frames: Any = islice(map(call, (gc.disable, sys._current_frames)), 1, 2)
    top = map(methodcaller("get", thread), frames)
    collects = gc.isenabled()
    try:
        found.extend(map(attrgetter("f_code", "f_lasti", "f_locals"), top))
    finally:
        if collects:
            gc.enable()
    code, at, variables = found[0]
    return code, at, variables


def code_globals(thread: int, code: CodeType) -> dict[str, Any]:
    """Globals that the code reads by name, without what its module does not say."""
    for module in tuple(sys.modules.values()):
        if getattr(module, "__file__", None) == code.co_filename:
            known = vars(module)
            return {name: known[name] for name in code.co_names if name in known}
    return {}


def _value(names: Any, chain: tuple[str, ...]) -> Any:
    """Through plain attributes and places of tuples alone: no code of the program runs."""
    value = names.get(chain[0])
    for name in chain[1:]:
        if isinstance(value, tuple) and name.isdecimal():
            value = value[int(name)] if int(name) < len(value) else None
        else:
            value = vars(value).get(name) if hasattr(value, "__dict__") else None
    return value


def _layout(value: Any) -> tuple[list[int] | None, list[int], int]:
    """Shape, strides in bytes and bytes of an element, of an array or a tensor on the host."""
    kind = type(value)
    if kind.__name__ == "ndarray" and kind.__module__ == "numpy":
        return list(value.shape), list(value.strides), int(value.itemsize)
    if kind.__name__ in ("Tensor", "Parameter") and kind.__module__.startswith("torch"):
        if value.device.type != "cpu":
            return None, [], 0
        size = int(value.element_size())
        return list(value.shape), [size * n for n in value.stride()], size
    return None, [], 0


def _counts(index: Any) -> bool:
    """Whether it is made of whole numbers, not of truth values."""
    return "int" in str(getattr(index, "dtype", ""))
