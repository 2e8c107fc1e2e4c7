"""Which figures of a line are the time of a step, and which of it its data took.

A line that times the whole step says so by its name. Others give its parts: a loader, a forward
and a backward pass beside each other, each once. Without both passes no sum of parts is a step.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from pinchpoint.regex import regex

_TIMED = r"(?:[ _/-]?(?:time|total|pass|latency|ms|s|sec|seconds))*$"
_LOADER = regex(
    r"\b(?:data|dataload\w*|data_?load\w*|loader|load|fetch|input)"
    r"(?:[ _-]?(?:time|wait|loading|ms|s))*\b|time[ _/]data|\bbatch[ _]load\w*",
    2,
)
_WHOLE_STEP = regex(
    r"^(?:train[ _/]?)?(?:step|iter|iteration|batch|total|elapsed)?[ _/]?time"
    r"(?:[ _](?:ms|s|per[ _]\w+))?(?: \(\w+\))?$"
    r"|^(?:step|iter|iteration|batch)(?:[ _](?:time|ms|s|duration))+$",
    2,
)
_FORWARD = regex(rf"^(?:\w+[ _/])?(?:forward|fwd){_TIMED}", 2)
_BACKWARD = regex(rf"^(?:\w+[ _/])?(?:backward|bwd){_TIMED}", 2)
# What a step has beside them; the loss is left out, which is as often a value as a time.
_OTHERS = (
    regex(rf"^(?:to[ _](?:device|gpu|cuda)|h2d|(?:data|host|device)[ _]transfer){_TIMED}", 2),
    regex(rf"^(?:optim\w*|opt|weight_update)(?:[ _]step)?{_TIMED}", 2),
)
BETWEEN = "\n"  # the parts of a step; no name has it
_MOST_LINES = 5000  # kinds of them, by the names in their order


class OfStep(NamedTuple):
    """Places of figures in a line, and the names that make up the step."""

    load: int
    step: tuple[int, ...]
    of: str


@lru_cache(maxsize=_MOST_LINES)
def _places(keys: tuple[str, ...]) -> OfStep | None:
    load = next((at for at, key in enumerate(keys) if _LOADER.search(key)), None)
    if load is None:
        return None
    whole = next((at for at, key in enumerate(keys) if _WHOLE_STEP.search(key)), None)
    if whole is not None:
        return OfStep(load, (whole,), keys[whole]) if whole != load else None
    passes = [_one_of(pattern, keys) for pattern in (_FORWARD, _BACKWARD)]
    if None in passes:
        return None
    others = [_one_of(pattern, keys) for pattern in _OTHERS]
    parts = tuple(sorted({load, *(at for at in (*passes, *others) if at is not None)}))
    names = [keys[at] for at in parts]
    return OfStep(load, parts, BETWEEN.join(names))


def load_and_step(keys: Sequence[str]) -> OfStep | None:
    """Of the names of a line's figures; None where none is of a loader, or nothing of a step."""
    return _places(tuple(keys))


def _one_of(pattern: re.Pattern[str], keys: tuple[str, ...]) -> int | None:
    """The place of a name, that of a total before its parts."""
    found = [at for at, key in enumerate(keys) if pattern.search(key)]
    return next((at for at in found if "total" in keys[at].lower()), found[0] if found else None)


__all__ = ["BETWEEN", "OfStep", "load_and_step"]
