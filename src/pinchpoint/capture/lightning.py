"""A callback for Lightning: ``Trainer(callbacks=[PinchpointCallback(out="runs/today")])``.

Works with both names of the package, ``lightning`` and ``pytorch_lightning``.
"""

import sys
from importlib import import_module
from typing import Any

from pinchpoint.capture.api import Capture, capture
from pinchpoint.errors import MissingExtra


def _callback_class() -> Any:
    names = ("lightning.pytorch", "pytorch_lightning")
    loaded = [name for name in names if name in sys.modules]
    for name in (*loaded, *names):
        try:
            return import_module(name).Callback
        except ImportError:
            continue
    raise MissingExtra("Lightning is not installed here", hint="pip install lightning")


class PinchpointCallback(_callback_class()):  # type: ignore[misc]
    """Records some steps of ``fit`` into a run folder; takes the arguments of ``capture``."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.capture: Capture = capture(**options)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Make the run folder."""
        self.capture.__enter__()

    def on_train_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        """A batch is done: a step."""
        self.capture.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Keep what was recorded."""
        self.capture.__exit__(None, None, None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Keep what was recorded before training failed."""
        self.capture.__exit__(type(exception), exception, exception.__traceback__)
