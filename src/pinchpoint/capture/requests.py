"""Requests for one more recording, as ``pinchpoint attach`` makes them: by a file."""

import time
from pathlib import Path

from pinchpoint.run_folder.layout import REQUEST_FILE

REQUEST_EVERY_NS = 1_000_000_000  # a look at a file in a step must not show in a mean


class Requests:
    """Whether somebody asked since the last answer."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / REQUEST_FILE
        self._looked_ns, self._answered = 0, 0

    def due(self) -> bool:
        """Whether it is time to look again."""
        now_ns = time.monotonic_ns()
        if now_ns - self._looked_ns < REQUEST_EVERY_NS:
            return False
        self._looked_ns = now_ns
        return True

    def new(self) -> bool:
        """Whether there is a request that was not answered; from now on it is."""
        try:
            stamp = self._file.stat().st_mtime_ns
        except OSError:
            return False
        new = stamp != self._answered
        self._answered = stamp
        return new
