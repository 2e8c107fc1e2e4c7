"""Act each time a function of the program returns, without changing its source."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Dict

from .after_import import Failed, after_import
from .interpreter_tools import AFTER_FUNCTION, take

Heard = Callable[[], None]


def after_function(name: str, heard: Heard, failed: Failed) -> None:
    """Call ``heard()`` after each call of ``module:function`` or ``module:Class.method``.

    Without a module it is one of the script. That one is wrapped at its first return, which the
    interpreter tells: from Python 3.12 on as a tool of its own, before that as its profile
    function, until which the program's calls are slower. One that is set already goes on beside it;
    one of C (cProfile) cannot, and keeps its place.
    """
    module, colon, path = name.rpartition(":")
    if colon and module != "__main__":
        after_import(module, lambda found: _wrap(found.__dict__, path, heard), failed)
        return

    def returned(names: dict[str, Any]) -> None:
        try:
            _wrap(names, path, heard)
        except Exception as error:  # the user's program comes first
            failed("__main__", error)
        heard()

    if sys.version_info >= (3, 12):
        watched = _watched_by_a_tool(path, returned)
    else:
        watched = _watched_by_profile(path, returned)
    if not watched:
        failed("__main__", RuntimeError(f"{path} is not seen beside another profiler"))


Returned = Callable[[Dict[str, Any]], None]
_SCRIPT = "__main__"


def _watched_by_profile(path: str, returned: Returned) -> bool:
    before = sys.getprofile()
    if before is not None and not callable(before):
        return False

    def look(frame: Any, event: Any, argument: Any) -> None:
        if before is not None:
            before(frame, event, argument)
        code = frame.f_code
        if event != "return" or getattr(code, "co_qualname", code.co_name) != path:
            return
        if frame.f_globals.get("__name__") == _SCRIPT:
            if sys.getprofile() is look:
                sys.setprofile(before)
            returned(frame.f_globals)

    sys.setprofile(look)
    return True


def _watched_by_a_tool(path: str, returned: Returned) -> bool:
    tool = take(AFTER_FUNCTION, lambda: None)  # no part matters more
    if tool is None:
        return False
    disable, event = tool.monitoring.DISABLE, tool.monitoring.events.PY_RETURN

    def look(code: Any, offset: int, value: Any) -> Any:
        names = sys._getframe(1).f_globals
        if code.co_qualname != path or names.get("__name__") != _SCRIPT:
            return disable  # of this place alone: the program is as fast as before
        try:
            told = waiting.pop()
        except IndexError:  # another thread returned first
            return None
        tool.end((event,))
        told(names)
        return None

    waiting = [returned]
    tool.listen(event, look)
    tool.ask(event)
    return True


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
