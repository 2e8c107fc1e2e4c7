"""A callback for the Hugging Face Trainer: ``Trainer(..., callbacks=[PinchpointCallback()])``."""

from importlib import import_module
from typing import Any

from pinchpoint.capture.api import Capture, capture
from pinchpoint.errors import MissingExtra


def _callback_class() -> Any:
    try:
        return import_module("transformers").TrainerCallback
    except ImportError:
        raise MissingExtra(
            "transformers is not installed here", hint="pip install transformers"
        ) from None


class PinchpointCallback(_callback_class()):  # type: ignore[misc]
    """Records some optimizer steps into a run folder; takes the arguments of ``capture``."""

    def __init__(self, **options: Any) -> None:
        self.capture: Capture = capture(**options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Make the run folder."""
        self.capture.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer step is done."""
        self.capture.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep what was recorded."""
        self.capture.__exit__(None, None, None)
