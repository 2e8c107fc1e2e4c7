"""Threads and processes of one recording, and keys that tell the processes apart."""

from collections.abc import Mapping

import numpy as np

from pinchpoint.trace import Thread
from pinchpoint.trace.arrays import Ints, Mask

NONE = -1


def pid_of(global_id: Ints) -> Ints:
    """The process id in global process or thread ids: bits 24 to 47; -1 stays."""
    return np.where(global_id < 0, NONE, (global_id >> 24) & 0xFFFFFF)


class ProcessKeys:
    """Correlation numbers are unique in a process only; this makes them unique in the trace."""

    def __init__(self, pids: Ints) -> None:
        self._pids = np.unique(pids[pids >= 0])

    def keyed(self, pid: Ints, number: Ints) -> Ints:
        """``number`` itself for the first process, shifted out of its way for the others.

        A row without a process belongs to the first one. -1 (no number) stays.
        """
        place = np.searchsorted(self._pids, pid).clip(0, max(len(self._pids) - 1, 0))
        shifted: Ints = number + (place.astype(np.int64) << 32)
        return np.where(number < 0, NONE, shifted)


class ThreadIndex:
    """From global thread ids (8 bits hardware, 8 VM, 24 process, 24 thread) to ``threads``."""

    def __init__(
        self, tids: Ints, labels: Mapping[object, str | None], ranks: Mapping[int, int]
    ) -> None:
        self._distinct = np.unique(tids)
        self._ranks = ranks
        self.threads = tuple(
            Thread(str((t >> 24) & 0xFFFFFF), str(t & 0xFFFFFF), labels.get(t))
            if t >= 0
            else Thread("unknown", "unknown")
            for t in self._distinct.tolist()
        )

    def positions(self, tids: Ints) -> Ints:
        """Position in ``threads`` of each id."""
        return np.searchsorted(self._distinct, tids)

    def pids(self, tids: Ints) -> Ints:
        """Process of each id."""
        return pid_of(tids)

    def ranks(self, tids: Ints) -> tuple[Ints, Mask]:
        """Rank of the process of each thread id, and where it is not known."""
        return self.ranks_of_pids(pid_of(tids))

    def ranks_of_pids(self, pids: Ints) -> tuple[Ints, Mask]:
        """Rank of each process, and where it is not known."""
        rank = np.full(len(pids), NONE, np.int64)
        for pid, number in self._ranks.items():
            rank[pids == pid] = number
        return rank, rank == NONE
