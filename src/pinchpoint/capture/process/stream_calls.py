"""How often functions run for one batch of a dataset with an iterator, in a loader's worker.

Workers of such a dataset each run all of it. What is done for each sample before they divide it is
done by every one of them: as many times for each sample of a batch as there are workers.
"""

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from pinchpoint.capture.samples.stacks import import_roots, relative

COUNTED = 3  # this batch of a worker, once: its first ones fill buffers of the program's own
MOST_EVENTS = 200_000  # calls and returns, 0.1 s; of a batch that has more, nothing is said
MOST_NOTED = 64  # functions that run most often
FEWEST_SAMPLES = 4  # of a batch: of fewer, a count says nothing about each


class StreamCalls:
    """Counts once in a worker; ``note`` is what it found, None until then."""

    def __init__(self) -> None:
        self.note: dict[str, Any] | None = None
        self._batches = 0

    @contextlib.contextmanager
    def counting(self, fetcher: Any, index: Any) -> Iterator[None]:
        """While a batch is fetched: count the calls of it, if it is the one to be counted."""
        self._batches += 1
        stream = hasattr(fetcher, "dataset_iter") and isinstance(index, list | tuple)
        if not stream or self._batches != COUNTED or sys.getprofile() is not None:
            yield
            return
        calls, events = Counter[CodeType](), 0

        def heard(frame: FrameType, event: str, _what: Any) -> None:
            nonlocal events
            events += 1
            if event == "call":
                calls[frame.f_code] += 1
            if events >= MOST_EVENTS:
                sys.setprofile(None)

        sys.setprofile(heard)
        try:
            yield
        finally:
            if sys.getprofile() is heard:
                sys.setprofile(None)
            if events < MOST_EVENTS and len(index) >= FEWEST_SAMPLES:
                self.note = _note(calls, len(index))


def _note(calls: Counter[CodeType], samples: int) -> dict[str, Any]:
    roots = import_roots()
    often = [(code, n) for code, n in calls.most_common(MOST_NOTED) if n >= samples]
    spelt = tuple(
        (relative(c.co_filename, roots), c.co_firstlineno, c.co_name, n) for c, n in often
    )
    return {"samples": samples, "calls": spelt}
