"""A bounded recording with ``jax.profiler``: an XPlane file below the trace folder."""

import sys
import time
from pathlib import Path

from pinchpoint.capture.recording import NOT_BEGUN, Recording
from pinchpoint.capture.trace_file import TraceFile


class JaxWindow:
    """One recording of everything that JAX does in this process."""

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder = folder / f"{stem}.jax"
        self._start_unix_ns = 0
        self.steps = -1

    def prime(self) -> None:
        """Nothing to pay in advance."""

    def open(self) -> None:
        """Nothing yet: JAX's profiler needs no warm-up."""

    def step(self) -> None:
        """Begin at the first call, then count."""
        self.steps += 1
        if self._start_unix_ns:
            return
        sys.modules["jax"].profiler.start_trace(str(self._folder))
        self._start_unix_ns = time.time_ns()

    def close(self, *, step_ended: bool = False) -> Recording:
        """Stop, and find the file that JAX wrote."""
        end_ns, start_ns = time.time_ns(), self._start_unix_ns
        if not start_ns:
            return Recording(None, NOT_BEGUN, end_ns, end_ns, 0)
        steps = self.steps + step_ended
        try:
            sys.modules["jax"].profiler.stop_trace()
        except (OSError, RuntimeError) as error:
            return Recording(
                None, str(error).splitlines()[0], start_ns, end_ns, self.steps + step_ended
            )
        return xplane_recording(self._folder, start_ns, end_ns, steps)


def xplane_recording(folder: Path, start_ns: int, end_ns: int, steps: int) -> Recording:
    """The newest XPlane file below ``folder``; an answer with a problem if there is none."""
    found = sorted(folder.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime_ns)
    if not found:
        return Recording(None, "the profiler wrote no XPlane file", start_ns, end_ns, steps)
    size = found[-1].stat().st_size
    name = str(found[-1].relative_to(folder.parent))
    return Recording(TraceFile(name, size, None, None), None, start_ns, end_ns, steps)
