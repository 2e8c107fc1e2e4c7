"""Act each time a function of the program returns, without changing its source."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable

from .after_import import Failed, after_import

Heard = Callable[[], None]


def after_function(name: str, heard: Heard, failed: Failed) -> None:
    """Call ``heard()`` after each call of ``module:function`` or ``module:Class.method``.

    Without a module it is one of the script. That one is wrapped at its first call, which a
    profile function of the interpreter waits for: until then the program's calls are slower.
    """
    module, colon, path = name.rpartition(":")
    if colon and module != "__main__":
        after_import(module, lambda found: _wrap(found.__dict__, path, heard), failed)
        return

    def look(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "return" or getattr(code, "co_qualname", code.co_name) != path:
            return
        if frame.f_globals.get("__name__") == "__main__":
            sys.setprofile(None)
            try:
                _wrap(frame.f_globals, path, heard)
            except Exception as error:  # the user's program comes first
                failed("__main__", error)
            heard()

    sys.setprofile(look)


def _wrap(names: dict[str, Any], path: str, heard: Heard) -> None:
    first, *rest = path.split(".")
    if not rest:
        names[first] = _wrapped(names[first], heard)
        return
    owner = names[first]
    for part in rest[:-1]:
        owner = getattr(owner, part)
    setattr(owner, rest[-1], _wrapped(getattr(owner, rest[-1]), heard))


def _wrapped(function: Callable[..., Any], heard: Heard) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        finally:
            heard()

    return call
