"""Act on a module right after the program imports it, and never import it ourselves."""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Action = Callable[[Any], None]


class AfterImport(MetaPathFinder):
    """A finder that finds nothing itself: it lets the others find, and watches the execution."""

    def __init__(self, actions: dict[str, Action], on_error: Callable[[str, Exception], None]):
        self._actions = dict(actions)
        self._on_error = on_error

    def install(self) -> None:
        """Watch from now on; modules that are already there are acted on at once."""
        for name in [n for n in self._actions if n in sys.modules]:
            self._act(name, sys.modules[name])
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Stop watching."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders give, with a loader that tells us when it is done."""
        if fullname not in self._actions:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                self._watch(spec.loader, fullname)
                return spec
        return None

    def _watch(self, loader: Loader, fullname: str) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._act(fullname, module)

        loader.exec_module = exec_module  # type: ignore[method-assign]

    def _act(self, fullname: str, module: ModuleType) -> None:
        action = self._actions.pop(fullname, None)
        if action is None:
            return
        try:
            action(module)
        except Exception as error:  # the user's program comes first
            self._on_error(fullname, error)
