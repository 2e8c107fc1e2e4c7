"""Reads, in the background, the recordings that the index does not know yet, newest first."""

from collections.abc import Sequence
from pathlib import Path
from threading import Lock, Thread

from pinchpoint.errors import PinchpointError
from pinchpoint.importers import load
from pinchpoint.report import diagnose
from pinchpoint.report.plain import plain
from pinchpoint.serve.index import Index
from pinchpoint.serve.listing import ListedRecording
from pinchpoint.serve.places import place
from pinchpoint.serve.summary import Summary, summarise

LARGEST_BYTES = 64 << 20  # of a file read unasked: larger ones are summarised once opened


class Reader:
    """One thread at a time; it ends when there is nothing left to read."""

    def __init__(self, root: Path, index: Index, making: Lock) -> None:
        self._root, self._index, self._making = root, index, making
        self._waiting: list[ListedRecording] = []
        self._thread: Thread | None = None
        self._guard = Lock()

    def want(self, unread: Sequence[ListedRecording]) -> None:
        """Have these read, the first one first."""
        with self._guard:
            self._waiting = [r for r in reversed(unread) if (r.bytes or 0) <= LARGEST_BYTES]
            if self._waiting and (self._thread is None or not self._thread.is_alive()):
                self._thread = Thread(target=self._work, daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._guard:
                if not self._waiting:
                    self._thread = None
                    return
                recording = self._waiting.pop()
            with self._making:  # one recording at a time also bounds memory
                summary = summary_of(self._root, recording.name)
            self._index.put(recording, summary)


def summary_of(root: Path, name: str) -> Summary:
    """The summary of a recording; what cannot be read says why."""
    try:
        trace = load(place(root, name).path)
        return summarise(trace, diagnose(trace))
    except PinchpointError as error:
        return Summary(problem=plain(error.message))
    except Exception as error:  # one recording must not stop the others
        return Summary(problem=plain(f"{type(error).__name__}: {error}"))
