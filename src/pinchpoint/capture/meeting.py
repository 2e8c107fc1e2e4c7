"""Ranks that record by time record the same time: the last one to be ready says when.

Each rank leaves a word in the run folder when its recording could begin. Once all have, every rank
begins a little after the latest of these words, which all of them read alike. Who hears nothing
for long enough (another machine with a disk of its own, a rank that ended) begins alone.
"""

import contextlib
import threading
import time
from pathlib import Path

from pinchpoint.capture.identity import Identity
from pinchpoint.run_folder.layout import PROCESSES

PATIENCE_S = 20.0  # a rank's start-up may lag behind by seconds
AHEAD_S = 0.5  # from the last word to the beginning; every rank looks more often than that
LOOK_EVERY_S = 0.05


def begin_together(
    folder: Path, identity: Identity, ranks: int, attempt: int, end: threading.Event
) -> bool:
    """Wait until all ``ranks`` that record are ready; whether they are.

    ``end`` is set when the program ends, and cuts every wait short.
    """
    if ranks < 2:
        return True
    place = folder / PROCESSES
    with contextlib.suppress(OSError):
        beside = place / f".ready-{attempt}.{identity.rank}.tmp"
        beside.write_text(repr(time.time()))
        beside.replace(place / f"ready-{attempt}.{identity.rank}.time")
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE_S:
        ready = _words(place, attempt)
        if len(ready) >= ranks:
            end.wait(min(max(max(ready) + AHEAD_S - time.time(), 0.0), PATIENCE_S))
            return True
        if end.wait(LOOK_EVERY_S):
            return False
    return False


def _words(place: Path, attempt: int) -> list[float]:
    found = []
    for path in place.glob(f"ready-{attempt}.*.time"):
        with contextlib.suppress(OSError, ValueError):
            found.append(float(path.read_text()))
    return found
