"""Reads, in the background, the recordings that the index does not know yet, newest first."""

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock, Thread

from pinchpoint.errors import PinchpointError
from pinchpoint.frozen import dataclass
from pinchpoint.importers import load
from pinchpoint.jobs import diagnose_ranks
from pinchpoint.jobs.full_page import job_in
from pinchpoint.report import diagnose
from pinchpoint.report.plain import plain
from pinchpoint.serve.index import Index
from pinchpoint.serve.listing import ListedRecording
from pinchpoint.serve.places import place
from pinchpoint.serve.summary import Summary, summarise, summarise_job

LARGEST_BYTES = 64 << 20  # of a file read unasked: larger ones are summarised once opened
LARGEST_JOB_BYTES = 4 * LARGEST_BYTES  # of all its ranks; they are read in several processes


@dataclass(frozen=True)
class Unread:
    """A recording, or the ranks of a job together, that the index does not know."""

    recording: ListedRecording
    ranks: tuple[str, ...] = ()  # names of the recordings of a job
    one: Summary | None = None  # of a rank

    @property
    def is_small(self) -> bool:
        """Whether it is read unasked."""
        most = LARGEST_JOB_BYTES if self.ranks else LARGEST_BYTES
        return (self.recording.bytes or 0) <= most


class Reader:
    """One thread at a time; it ends when there is nothing left to read."""

    def __init__(self, root: Path, index: Index, making: Lock) -> None:
        self._root, self._index, self._making = root, index, making
        self._waiting: list[Unread] = []
        self._thread: Thread | None = None
        self._guard = Lock()

    def want(self, unread: Sequence[Unread]) -> None:
        """Have these read, the first one first."""
        with self._guard:
            self._waiting = [one for one in reversed(unread) if one.is_small]
            if self._waiting and (self._thread is None or not self._thread.is_alive()):
                self._thread = Thread(target=self._work, daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._guard:
                if not self._waiting:
                    self._thread = None
                    return
                unread = self._waiting.pop()
            with self._making:  # one recording at a time also bounds memory
                if unread.one is None:
                    summary = summary_of(self._root, unread.recording.name)
                else:
                    summary = summary_of_job(self._root, unread.ranks, unread.one)
            self._index.put(unread.recording, summary)


def summary_of(root: Path, name: str) -> Summary:
    """The summary of a recording, or of a run with all its ranks; what cannot be read says why."""
    return _or_why_not(lambda: _of_recording(place(root, name).path))


def _of_recording(path: Path) -> Summary:
    trace = load(path)
    summary, job = summarise(trace, diagnose(trace)), job_in(path)
    return summary if job is None else summarise_job(job, summary)


def summary_of_job(root: Path, ranks: Sequence[str], one: Summary) -> Summary:
    """What the ranks of a job say together; ``one`` is the summary of any of them."""
    return _or_why_not(
        lambda: summarise_job(diagnose_ranks([place(root, name).path for name in ranks]), one)
    )


def _or_why_not(read: Callable[[], Summary]) -> Summary:
    try:
        return read()
    except PinchpointError as error:
        return Summary(problem=plain(error.message))
    except Exception as error:  # one recording must not stop the others
        return Summary(problem=plain(f"{type(error).__name__}: {error}"))
