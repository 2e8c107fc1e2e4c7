"""What a data loader means for a recording: how long its queue is felt, and what comes in rounds.

Batches of workers that hold the program back come in bursts, one a worker. Short epochs begin
anew, with new workers, every few steps. A stall of the program lets the loader fill its queue.
"""

from collections.abc import Sequence
from typing import Any

LEAST_DRAIN_STEPS = 2
MOST_DRAIN_STEPS = 64
MOST_ROUND_STEPS = 32  # of workers or an epoch: recordings should stay small
RECENT_STEPS = 20


class LoaderRhythm:
    """Hears of batches and iterators."""

    def __init__(self) -> None:
        self.fetches = 0
        self._ahead, self._workers = 0, 0
        self._epochs, self._in_whole_epochs = 0, 0

    def fetched(self, iterator: Any) -> None:
        """The program got a batch."""
        self.fetches += 1
        workers = getattr(iterator, "_num_workers", 0) or 0
        ahead = workers * (getattr(iterator, "_prefetch_factor", 0) or 0)
        self._ahead = min(max(self._ahead, ahead), MOST_DRAIN_STEPS)
        self._workers = min(max(self._workers, workers), MOST_ROUND_STEPS)

    def epoch_begins(self) -> None:
        """A loader made an iterator."""
        self._epochs += 1
        self._in_whole_epochs = self.fetches

    def drain_steps(self, stalled_ns: int, interval_ns: Sequence[int]) -> int:
        """Steps until a stall of so long is no longer felt: those whose batches were made in it.

        A loader that holds the program back makes one batch in the time of a mean step. One that
        does not had its queue full before.
        """
        recent = interval_ns[-RECENT_STEPS:]
        made = self._ahead
        if recent:
            made = min(made, stalled_ns * len(recent) // max(sum(recent), 1) + 1)
        return max(LEAST_DRAIN_STEPS, made + 1)

    def round_steps(self) -> int:
        """Steps that hold a batch of every worker, and the beginning of an epoch if it is short."""
        whole = self._epochs - 1
        epoch = self._in_whole_epochs // whole + 1 if whole > 0 else 0
        return max(self._workers, epoch) if epoch <= MOST_ROUND_STEPS else self._workers
