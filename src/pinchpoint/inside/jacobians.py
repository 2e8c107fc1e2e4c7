"""``jax.jacrev`` and ``jax.jacobian``: how many numbers go in, and how many come out.

What is compiled shows a pass back for each number that comes out, not how many went in. JAX's own
function that puts such a Jacobian together is listened to. All of it is private to JAX: what is not
as known here is left alone.
"""

from __future__ import annotations

import sys
from typing import Any, Callable

from .after_import import Failed, after_import
from .both_branches import user_frame

MOST_PLACES = 16  # a program has a handful
_API = "jax._src.api"

found: dict[tuple[str, int, str], tuple[int, int]] = {}
"""By the place where the Jacobian is taken: numbers that come out and that go in, of one row."""


def watch(failed: Failed) -> Callable[[], None]:
    """Listen from the import of JAX on. Returns how to take it back."""
    put_back: list[Callable[[], None]] = []
    forget = after_import(_API, lambda module: put_back.append(_listen(module)), failed)

    def take_back() -> None:
        forget()
        while put_back:
            put_back.pop()()

    return take_back


def _listen(api: Any) -> Callable[[], None]:
    original = api._jacrev_unravel
    of_call: list[Any] = [None, 0]  # what came out of the present one, and what went in so far

    def unravel(output: Any, leaf: Any, array: Any) -> Any:
        try:
            if of_call[0] is not output:
                of_call[:] = output, 0
            of_call[1] += int(leaf.size)
            _note(output, of_call[1])
        except Exception:  # another version of JAX: the program comes first
            pass
        return original(output, leaf, array)

    # JAX writes the innermost frame outside of its own files to what it compiles: not this one.
    unravel.__code__ = unravel.__code__.replace(co_filename=api.__file__)
    api._jacrev_unravel = unravel

    def put_back() -> None:
        of_call[:] = None, 0
        if api._jacrev_unravel is unravel:
            api._jacrev_unravel = original

    return put_back


def _note(output: Any, inputs: int) -> None:
    sources = sys.modules["jax._src.source_info_util"]
    frame = user_frame(sources, sources.current())
    if frame is None:
        return
    place = (frame.file_name, frame.start_line, frame.function_name)
    outputs = sum(int(one.size) for one in sys.modules["jax"].tree_util.tree_leaves(output))
    if place in found or len(found) < MOST_PLACES:
        found[place] = (outputs, inputs)
