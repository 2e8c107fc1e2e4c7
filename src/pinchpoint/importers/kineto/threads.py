"""Host threads: pairs of process and thread ids become positions in ``Trace.threads``."""

import numpy as np

from pinchpoint.importers.kineto.columns import used_in_order
from pinchpoint.importers.kineto.lenient import value_text
from pinchpoint.importers.kineto.rare import Rare, thread_label
from pinchpoint.importers.kineto.scan import Place
from pinchpoint.trace import Thread
from pinchpoint.trace.arrays import Array


class Threads:
    """Collects the threads of all tables; positions are given out in order of appearance."""

    def __init__(self, places: list[Place], rare: Rare) -> None:
        self._ids = [place_text(place) for place in places]
        self._rare = rare
        self._position: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._position)

    def positions(self, place: Array) -> Array:
        """The thread of each row of a place column."""
        there = np.zeros(len(self._ids), np.int32)
        for position in used_in_order(place, len(self._ids)):
            ids = self._ids[position]
            there[position] = self._position.setdefault(ids, len(self._position))
        return there[place]

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


def place_text(place: Place) -> tuple[str, str]:
    """Process and thread as text; empty where the event does not say."""
    process, thread = place
    return value_text(process or b""), value_text(thread or b"")
