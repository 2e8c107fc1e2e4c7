"""A bounded recording with torch_xla's profiler: an XPlane file below the trace folder."""

from importlib import import_module
from typing import Any

from pinchpoint.capture.jax_window import JaxWindow


class XlaWindow(JaxWindow):
    """One recording of what a torch_xla program does on its TPU or other XLA device."""

    SUFFIX = "xla"

    @staticmethod
    def _profiler() -> Any:
        profiler = import_module("torch_xla.debug.profiler")
        if not hasattr(profiler, "start_trace"):
            raise RuntimeError("this torch_xla is too old: its profiler has no start_trace")
        return profiler
