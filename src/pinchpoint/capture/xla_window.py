"""A bounded recording with torch_xla's profiler: an XPlane file below the trace folder."""

import time
from importlib import import_module
from pathlib import Path
from typing import Any

from pinchpoint.capture.jax_window import xplane_recording
from pinchpoint.capture.recording import NOT_BEGUN, Recording


class XlaWindow:
    """One recording of what a torch_xla program does on its TPU or other XLA device."""

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder = folder / f"{stem}.xla"
        self._start_unix_ns = 0
        self.steps = -1

    def prime(self) -> None:
        """Import the profiler."""
        self._profiler()

    def open(self) -> None:
        """Nothing yet."""

    def step(self) -> None:
        """Begin at the first call, then count."""
        self.steps += 1
        if self._start_unix_ns:
            return
        self._profiler().start_trace(str(self._folder))
        self._start_unix_ns = time.time_ns()

    def close(self, *, step_ended: bool = False) -> Recording:
        """Stop, and find the file."""
        end_ns, start_ns = time.time_ns(), self._start_unix_ns
        if not start_ns:
            return Recording(None, NOT_BEGUN, end_ns, end_ns, 0)
        steps = self.steps + step_ended
        try:
            self._profiler().stop_trace()
        except (OSError, RuntimeError) as error:
            return Recording(
                None, str(error).splitlines()[0], start_ns, end_ns, self.steps + step_ended
            )
        return xplane_recording(self._folder, start_ns, end_ns, steps)

    @staticmethod
    def _profiler() -> Any:
        profiler = import_module("torch_xla.debug.profiler")
        if not hasattr(profiler, "start_trace"):
            raise RuntimeError("this torch_xla is too old: its profiler has no start_trace")
        return profiler
