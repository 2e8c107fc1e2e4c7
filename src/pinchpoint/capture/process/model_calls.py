"""Calls of a model as marks of the steps of a program that does not train."""

import threading
from typing import Any

from pinchpoint.capture.process.policy import optimizer_exists
from pinchpoint.capture.process.step_clock import MarkingOptimizer


class ModelCalls:
    """Whose calls mark steps: of modules with parameters the first, until it is no longer called.

    Calls from several threads overlap, and a recording of one thread would miss the others; so
    they mark nothing. Nor do those of a program that has an optimizer, whose steps will come.
    """

    def __init__(self, *, optimizer_decides: bool = True) -> None:
        self._optimizer_decides = optimizer_decides
        self._model = MarkingOptimizer()
        self._thread: int | None = None
        self.overlap = False

    def may_mark(self) -> bool:
        """Whether a call from this thread may be a step."""
        thread = threading.get_ident()
        self._thread = self._thread or thread
        self.overlap = self.overlap or thread != self._thread
        return not self.overlap and not (self._optimizer_decides and optimizer_exists())

    def marks(self, model: Any) -> bool:
        """Whether this call ends a step."""
        return next(model.parameters(), None) is not None and self._model.stepped(model)
