"""Host threads: pairs of process and thread ids become positions in ``Trace.threads``."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pinchpoint.importers.kineto.columns import Interned, used_in_order
from pinchpoint.importers.kineto.rare import Rare, thread_label
from pinchpoint.trace import Thread

Array = NDArray[Any]


class Threads:
    """Collects the threads of all tables; positions are given out in order of appearance."""

    def __init__(self, interned: Interned, rare: Rare) -> None:
        self._interned = interned
        self._rare = rare
        self._position: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._position)

    def positions(self, process: Array, thread: Array) -> Array:
        """The thread of each row, from its two interned columns."""
        processes, process_at = _dense(process)
        threads, thread_at = _dense(thread)
        width = max(1, len(threads))
        pairs, rows = _dense(process_at * width + thread_at)
        there = np.zeros(len(pairs), np.int32)
        for place in used_in_order(rows, len(pairs)):
            high, low = divmod(int(pairs[place]), width)
            ids = self._text(int(processes[high])), self._text(int(threads[low]))
            there[place] = self._position.setdefault(ids, len(self._position))
        return there[rows]

    def _text(self, text: int) -> str:
        return "" if text < 0 else self._interned.string(text)

    def freeze(self) -> tuple[Thread, ...]:
        """The threads with their labels."""
        return tuple(
            Thread(
                process,
                thread,
                thread_label(
                    self._rare.thread_labels.get((process, thread), []),
                    self._rare.process_names.get(process),
                ),
            )
            for process, thread in self._position
        )


def _dense(column: Array) -> tuple[Array, Array]:
    """The different values, in order, and the position of each row's value among them."""
    if not len(column):
        return column.astype(np.int64), column.astype(np.int64)
    low, high = int(column.min()), int(column.max())
    if high - low > 4 * len(column) + 1000:
        return np.unique(column, return_inverse=True)
    present = np.zeros(high - low + 1, np.bool_)
    present[column - low] = True
    place = np.cumsum(present) - 1
    return np.flatnonzero(present) + low, place[column - low]
