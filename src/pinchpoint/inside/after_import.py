"""Act on a module right after the program imports it, and never import it ourselves."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any, Callable

Action = Callable[[Any], None]
Failed = Callable[[str, Exception], None]


def after_import(name: str, action: Action, failed: Failed) -> Callable[[], None]:
    """Call ``action(module)`` once the module is complete, or at once if it is there already.

    An action that raises becomes a call of ``failed(name, error)``. Returns how to take it back.
    """
    if name in sys.modules:
        _act(name, sys.modules[name], action, failed)
        return _nothing
    waiting = (action, failed)
    _FINDER.waiting.setdefault(name, []).append(waiting)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)

    def take_back() -> None:
        if waiting in _FINDER.waiting.get(name, ()):
            _FINDER.waiting[name].remove(waiting)
        _FINDER.leave_if_done()

    return take_back


class _Finder(MetaPathFinder):
    """Finds nothing itself: it lets the others find, and watches the execution."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[tuple[Action, Failed]]] = {}

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """The spec that the other finders give, with a loader that tells us when it is done."""
        if not self.waiting.get(fullname):
            return None
        for finder in tuple(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                self._watch(spec.loader, fullname)
                return spec
        return None

    def _watch(self, loader: Any, fullname: str) -> None:
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            if module.__name__ == fullname:  # a loader of an archive is shared by its modules
                for action, failed in self.waiting.pop(fullname, ()):
                    _act(fullname, module, action, failed)
                self.leave_if_done()

        loader.exec_module = exec_module

    def leave_if_done(self) -> None:
        """Nothing is waited for any more: imports are as they were."""
        if not any(self.waiting.values()) and self in sys.meta_path:
            sys.meta_path.remove(self)


def _act(name: str, module: Any, action: Action, failed: Failed) -> None:
    try:
        action(module)
    except Exception as error:  # the user's program comes first
        failed(name, error)


def _nothing() -> None:
    pass


_FINDER = _Finder()
