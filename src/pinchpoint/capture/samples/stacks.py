"""Stacks as small numbers: each different one is kept once."""

import gc
import sys
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, islice, repeat
from operator import attrgetter, methodcaller
from types import CodeType
from typing import Any

from pinchpoint.capture.samples.instructions import doing

MOST_FRAMES = 192  # of one stack, innermost first: a compiler has 150 on top of the program
_DEEPEST = 1 << 16  # far more than Python's limit of recursion; it ends where there is no more
MOST_STACKS = 8192  # different ones of a process; about ten megabytes
OTHER = -1  # the number of all that came later


Place = tuple[CodeType, int]  # of a frame, and at which instruction it is
_CALL = methodcaller("__call__")


def frames_of_threads() -> dict[int, Any]:
    """``sys._current_frames()``, during which no garbage is collected.

    Until CPython 3.11.9 that call holds a lock while it makes objects. Where that collects garbage,
    callbacks and finalizers in Python may let another thread run, and one that asks for the same
    waits for that lock with the interpreter's own in its hand: for ever (seen in a launcher of two
    ranks under 3.11.7). All in one call of C, so that nobody collects again in between.
    """
    said: Any = map(_CALL, (gc.isenabled, gc.disable, sys._current_frames))
    frames: dict[int, Any]
    collects, _, frames = said
    if collects:
        gc.enable()
    try:
        return frames
    finally:
        # The frame of this call is one of them: with them as its own variable it would keep them,
        # and with those of other threads the tensors in their hands, until garbage is collected.
        del frames


def stack_of(thread: int) -> list[Place]:
    """Where a running thread is, innermost first; empty of one that has ended.

    All in one call of C, without a collection of garbage, so that no other thread runs meanwhile
    and no frame is kept: in CPython 3.11 the frame that a thread leaves may be seen, and points to
    memory that is soon another's. To ask for its caller then ended programs (one run of twelve of
    many small operators, at load 11 on 2 CPUs).
    """
    found: list[Place] = []
    without_collecting: Any = map(_CALL, (gc.disable, sys._current_frames))
    top = map(methodcaller("get", thread), islice(without_collecting, 1, 2))
    frames: Any = accumulate(chain(top, repeat("f_back", _DEEPEST)), getattr)
    places = map(attrgetter("f_code", "f_lasti"), frames)
    collects = gc.isenabled()
    try:
        found.extend(places)
    except AttributeError:  # of None, which is below the outermost frame
        pass
    finally:
        if collects:
            gc.enable()
    return found


class StackTable:
    """Numbers stacks. Keeps code objects alive, never frames, which would keep tensors alive."""

    def __init__(self) -> None:
        self._codes: dict[int, tuple[int, CodeType]] = {}
        self._stacks: dict[tuple[int, ...], int] = {}

    def number(self, places: Sequence[Place]) -> int:
        """The number of this stack, innermost frame first."""
        key: list[int] = []
        codes = self._codes
        for code, at in places[:MOST_FRAMES]:
            known = codes.get(id(code))
            if known is None:
                known = codes[id(code)] = (len(codes), code)
            key.append(known[0])
            key.append(at)
        stack = tuple(key)
        found = self._stacks.get(stack)
        if found is None:
            if len(self._stacks) >= MOST_STACKS:
                return OTHER
            found = self._stacks[stack] = len(self._stacks)
        return found

    def codes(self) -> dict[int, tuple[CodeType, ...]]:
        """The functions of each stack, by its number, innermost first."""
        codes = [code for _, code in sorted(self._codes.values(), key=lambda one: one[0])]
        return {n: tuple(codes[at] for at in key[::2]) for key, n in list(self._stacks.items())}

    def spelt(
        self, numbers: Iterable[int]
    ) -> tuple[list[list[object]], dict[int, list[int]], list[str]]:
        """Frames as ``[file, line, function]``, for each stack the rows of its frames, and what its
        innermost frame was at."""
        codes = [code for _, code in sorted(self._codes.values(), key=lambda one: one[0])]
        roots = import_roots()
        rows: dict[tuple[int, int], int] = {}
        frames: list[list[object]] = []
        wanted = set(numbers)
        stacks: dict[int, list[int]] = {}
        at_what: list[str] = []
        for key, number in list(self._stacks.items()):
            if number not in wanted:
                continue
            stack = []
            for code, at in zip(key[::2], key[1::2], strict=True):
                line = line_of(codes[code], at)
                row = rows.setdefault((code, line), len(frames))
                if row == len(frames):
                    file = relative(codes[code].co_filename, roots)
                    frames.append([file, line, codes[code].co_name])
                stack.append(row)
            stacks[number] = stack
            at_what.append(doing(codes[key[0]], key[1]) if key else "")
        return frames, stacks, at_what


def spelt_stack(stack: Iterable[tuple[CodeType, int]]) -> list[list[object]]:
    """Frames as ``[file, line, function]`` of codes and instructions."""
    roots = import_roots()
    return [[relative(c.co_filename, roots), line_of(c, at), c.co_name] for c, at in stack]


def line_of(code: CodeType, at: int) -> int:
    """The source line of an instruction, by its offset in bytes.

    The jump back to the head of a loop has none: it belongs to the line before it.
    """
    last = code.co_firstlineno
    for start, end, line in code.co_lines():
        last = last if line is None else line
        if start <= at < end:
            return last
    return code.co_firstlineno


def import_roots() -> list[str]:
    """Folders of the import path, longest first."""
    return sorted({p.rstrip("/") + "/" for p in sys.path if p.startswith("/")}, key=len)[::-1]


def relative(file: str, roots: list[str]) -> str:
    """A path as the profiler spells it: below the folder of the import path it was found on."""
    root = next((r for r in roots if file.startswith(r)), None)
    return file if root is None else file[len(root) :]


_WHERE_INSTALLED = ("/site-packages/", "/dist-packages/")
_MOST_INSTALLED = 2000  # of a program: torch with all that it brings has some two hundred


def installed_packages() -> list[str]:
    """Packages that were imported from where pip puts them, but for the one that is run: below the
    import path their files look like the program's own."""
    program = getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", None) or ""
    found = set()
    for name, module in list(sys.modules.items()):
        # Not by attribute: a module that loads others when it is asked would do so.
        file = getattr(module, "__dict__", {}).get("__file__")
        if "." not in name and isinstance(file, str) and any(p in file for p in _WHERE_INSTALLED):
            found.add(name)
    return sorted(found - {program.partition(".")[0]})[:_MOST_INSTALLED]
