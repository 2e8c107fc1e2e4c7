"""``jax.lax.cond`` and ``switch`` of which ``jax.vmap`` makes a choice among results.

With a predicate for each row both branches are computed for all rows. Nothing in what is compiled
tells it from a choice that was written down, so JAX's own rule for it is listened to. All of it is
private to JAX: what is not as known here is left alone.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Iterator

from .after_import import Failed, after_import

_HERE = os.path.dirname(__file__)
MOST_PLACES = 16  # of conditions; a program has a handful
MOST_LINES = 256  # of one: its branches are some functions
_CONDITIONS, _BATCHING = (
    "jax._src.lax.control_flow.conditionals",
    "jax._src.interpreters.batching",
)

found: dict[tuple[str, int, str], set[tuple[str, int]]] = {}
"""By the place of the condition, the lines that its branches consist of."""


def watch(failed: Failed) -> Callable[[], None]:
    """Listen from the import of JAX on. Returns how to take it back."""
    put_back: list[Callable[[], None]] = []
    forget = after_import(_CONDITIONS, lambda module: put_back.append(_listen(module)), failed)

    def take_back() -> None:
        forget()
        while put_back:
            put_back.pop()()

    return take_back


def _listen(conditions: Any) -> Callable[[], None]:
    rules = sys.modules[_BATCHING].fancy_primitive_batchers
    condition = conditions.cond_p
    original = rules[condition]

    def rule(*args: Any, **params: Any) -> Any:
        try:
            if args[-1][0] is not None:  # the dimension in which the predicate differs
                _note(params["branches"])
        except Exception:  # another version of JAX: the program comes first
            pass
        return original(*args, **params)

    # JAX writes the innermost frame outside of its own files to what it compiles: not this one.
    rule.__code__ = rule.__code__.replace(co_filename=conditions.__file__)
    rules[condition] = rule

    def put_back() -> None:
        if rules.get(condition) is rule:
            rules[condition] = original

    return put_back


def _note(branches: Any) -> None:
    if len(found) >= MOST_PLACES:
        return
    sources = sys.modules["jax._src.source_info_util"]
    frame = user_frame(sources, sources.current())
    if frame is None:
        return
    place = (frame.file_name, frame.start_line, frame.function_name)
    lines = found.setdefault(place, set())
    for branch in branches:
        for equation in _equations(branch.jaxpr):
            at = user_frame(sources, equation.source_info)
            if at is not None and len(lines) < MOST_LINES:
                lines.add((at.file_name, at.start_line))


def user_frame(sources: Any, info: Any) -> Any:
    """The innermost one of a source, or of its traceback: versions of JAX differ."""
    try:
        frames = sources.user_frames(info.traceback)
    except (AttributeError, TypeError):
        frames = sources.user_frames(info)
    return next((frame for frame in frames if not frame.file_name.startswith(_HERE)), None)


def _equations(jaxpr: Any) -> Iterator[Any]:
    todo = [jaxpr]
    while todo:
        for equation in todo.pop().eqns:
            yield equation
            for value in equation.params.values():
                for one in value if isinstance(value, (tuple, list)) else (value,):
                    inner = getattr(one, "jaxpr", one)
                    if hasattr(inner, "eqns"):
                        todo.append(inner)
