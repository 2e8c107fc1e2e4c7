"""All ranks of a job record the same steps: the first rank decides, the others read it.

Ranks of a synchronous job are at most one step apart, so a step a little ahead is in time for
everyone. The decision travels as a small file of the run folder; a rank that cannot see it (another
machine with its own disk) decides for itself, late.
"""

import contextlib
from pathlib import Path

from pinchpoint.capture.identity import Identity
from pinchpoint.monitor.run_folder import PROCESSES

AHEAD = 3  # steps between the decision and the recording
ALONE_AFTER = 60  # steps that a rank waits for the decision once it would have decided itself


class Agreement:
    """At which edge this rank should open its recording."""

    def __init__(self, folder: Path, identity: Identity) -> None:
        self._path = folder / PROCESSES / "open-at-step.txt"
        self._alone = identity.world_size == 1
        self._leads = identity.rank == 0
        self._open_at: int | None = None
        self._ready_since: int | None = None

    def due(self, edge: int, ready: bool) -> bool:
        """Whether the recording should open at this edge; ``ready``: this rank thinks so."""
        if self._alone:
            return ready
        if self._open_at is None:
            self._open_at = self._decide(edge, ready) if self._leads else self._read()
        if self._open_at is None and ready:
            self._ready_since = edge if self._ready_since is None else self._ready_since
            return edge - self._ready_since >= ALONE_AFTER
        return self._open_at is not None and edge >= self._open_at

    def _decide(self, edge: int, ready: bool) -> int | None:
        if not ready:
            return None
        with contextlib.suppress(OSError):
            beside = self._path.with_suffix(".tmp")
            beside.write_text(str(edge + AHEAD))
            beside.replace(self._path)
        return edge + AHEAD

    def _read(self) -> int | None:
        try:
            return int(self._path.read_text())
        except (OSError, ValueError):
            return None
