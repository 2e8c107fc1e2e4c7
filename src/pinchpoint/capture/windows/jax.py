"""A bounded recording with the profiler of JAX or torch_xla: an XPlane file below the traces."""

import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from pinchpoint.capture.windows.recording import NOT_BEGUN, Recording, TraceFile


class JaxWindow:
    """One recording of everything that JAX does in this process."""

    SUFFIX = "jax"  # of the folder that the profiler fills

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder = folder / f"{stem}.{self.SUFFIX}"
        self._start_unix_ns = 0
        self.steps = -1

    def prime(self) -> None:
        """Find the profiler. Raises RuntimeError if it is too old."""
        self._profiler()

    def open(self) -> None:
        """Begin, one step early.

        The name of a step goes into the trace only if the trace had begun when the program made
        the annotation, before it entered it; so the step under way has none.
        """
        self._profiler().start_trace(str(self._folder))
        self._start_unix_ns = time.time_ns()

    def step(self) -> None:
        """Count."""
        self.steps += 1

    def close(self, *, step_ended: bool = False) -> Recording:
        """Stop, and find the file that the profiler wrote."""
        end_ns, start_ns = time.time_ns(), self._start_unix_ns
        steps = max(self.steps + step_ended, 0)
        problem = NOT_BEGUN if self.steps < 0 else None
        try:
            if start_ns:
                self._profiler().stop_trace()
        except (OSError, RuntimeError) as error:
            problem = str(error).splitlines()[0]
        if problem is not None:
            return Recording(None, problem, start_ns or end_ns, end_ns, steps)
        return _newest(self._folder, start_ns, end_ns, steps)

    @staticmethod
    def _profiler() -> Any:
        return sys.modules["jax"].profiler


def _newest(folder: Path, start_ns: int, end_ns: int, steps: int) -> Recording:
    """The newest XPlane file below ``folder``; an answer with a problem if there is none."""
    found = sorted(folder.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime_ns)
    if not found:
        return Recording(None, "the profiler wrote no XPlane file", start_ns, end_ns, steps)
    size = found[-1].stat().st_size
    name = str(found[-1].relative_to(folder.parent))
    return Recording(TraceFile(name, size, None, None), None, start_ns, end_ns, steps)


class XlaWindow(JaxWindow):
    """One recording of what a torch_xla program does on its TPU or other XLA device."""

    SUFFIX = "xla"

    @staticmethod
    def _profiler() -> Any:
        profiler = import_module("torch_xla.debug.profiler")
        if not hasattr(profiler, "start_trace"):
            raise RuntimeError("this torch_xla is too old: its profiler has no start_trace")
        return profiler
