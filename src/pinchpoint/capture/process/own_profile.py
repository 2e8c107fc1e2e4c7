"""The program's own ``torch.profiler``: only one can record at a time, so that is the run's.

The file that the program wrote last is copied as the program ends. Where it wrote none, what its
profiler still holds is written then: nobody can ask for it any more.
"""

import functools
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pinchpoint.capture.process.step_clock import StepClock
from pinchpoint.capture.windows.recording import BrokenTrace, Recording, TraceFile, pack
from pinchpoint.capture.windows.torch import OWN, unused, write_trace

TAKEN = (
    "the program runs its own profiler, and only one can record at a time: its recording is the "
    "one that is diagnosed"
)
_OURS = "_made_by_pinchpoint"


class OwnProfile:
    """What profilers of the program did."""

    def __init__(self, clock: Callable[[], StepClock]) -> None:
        self._clock = clock
        self.records = False  # now: such steps are no ordinary ones
        self._results: Any = None  # of the last recording, unless the program wrote it
        self._path: Path | None = None
        self._start_unix_ns = self._end_unix_ns = 0

    def watch(self, kind: Any) -> None:
        """Hear of all recordings of ``torch.profiler._KinetoProfile`` and what is made of it."""
        prepare, stop, export = kind.prepare_trace, kind.stop_trace, kind.export_chrome_trace

        @functools.wraps(prepare)
        def prepare_trace(profile: Any) -> Any:
            if OWN.building:
                setattr(profile, _OURS, True)
            else:
                self._begins()
            return prepare(profile)

        @functools.wraps(stop)
        def stop_trace(profile: Any) -> Any:
            try:
                return stop(profile)
            finally:
                if not hasattr(profile, _OURS):
                    self._ended(profile)

        @functools.wraps(export)
        def export_chrome_trace(profile: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
            result = export(profile, path, *args, **kwargs)
            if not hasattr(profile, _OURS):
                self._results, self._path = None, Path(path).absolute()
            return result

        kind.prepare_trace, kind.stop_trace = prepare_trace, stop_trace
        kind.export_chrome_trace = export_chrome_trace

    def _begins(self) -> None:
        self.records, self._results = True, None
        self._start_unix_ns = time.time_ns()

    def _ended(self, profile: Any) -> None:
        self.records = False
        self._clock().disturb()  # ending takes time in this step, too
        self._end_unix_ns = time.time_ns()
        self._results = getattr(getattr(profile, "profiler", None), "kineto_results", None)

    def recording(self, folder: Path, stem: str) -> Recording | None:
        """Take the last one into a run folder; None where there is none, or it cannot be taken."""
        results, self._results = self._results, None
        try:
            if self._path is not None and self._path.is_file():
                file = _copied(self._path, folder, stem)
            elif results is not None:
                file = write_trace(results.save, folder, stem)
            else:
                return None
        except (BrokenTrace, OSError, RuntimeError):
            return None
        return Recording(file, None, self._start_unix_ns, self._end_unix_ns, 0)


def _copied(source: Path, folder: Path, stem: str) -> TraceFile:
    target = unused(folder, stem)
    if source.suffix == ".gz":
        shutil.copyfile(source, target)
        return TraceFile(target.name, target.stat().st_size, None, None)
    raw = folder / f".{stem}.own.json"
    shutil.copyfile(source, raw)
    return pack(raw, target)
