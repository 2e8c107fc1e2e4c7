"""All ranks of a job record the same steps: the first rank decides, the others read it.

Ranks of a synchronous job are at most one step apart, so a step a little ahead is in time for
everyone. The decision travels as a small file of the run folder; a rank that cannot see it (another
machine with its own disk) decides for itself, late.
"""

import contextlib
from pathlib import Path

from pinchpoint.capture.identity import Identity
from pinchpoint.run_folder.layout import PROCESSES

AHEAD = 3  # steps between the decision and the recording
ALONE_AFTER = 60  # steps that a rank waits for the decision once it would have decided itself


class Agreement:
    """At which edge this rank should open its recording; may be asked again for a later one."""

    def __init__(self, folder: Path, identity: Identity) -> None:
        self._path = folder / PROCESSES / "open-at-step.txt"
        self._alone = identity.world_size == 1
        self._leads = identity.rank == 0
        self._opened_at = 0
        self._ready_since: int | None = None
        self.pending: int | None = None  # decided, and still ahead

    @property
    def decides(self) -> bool:
        """Whether this rank's opinion counts."""
        return self._alone or self._leads

    def due(self, edge: int, ready: bool, ahead: int = AHEAD) -> bool:
        """Whether the recording should open at this edge; ``ready``: this rank thinks so.

        ``ahead`` is how many steps the others need to hear of it.
        """
        if self._alone:
            return ready
        if self.pending is None:
            self.pending = self._decide(edge + ahead, ready) if self._leads else self._read()
        if self.pending is None and ready:
            self._ready_since = edge if self._ready_since is None else self._ready_since
            return edge - self._ready_since >= ALONE_AFTER
        if self.pending is None or edge < self.pending:
            return False
        self._opened_at, self.pending, self._ready_since = self.pending, None, None
        return True

    def _decide(self, at: int, ready: bool) -> int | None:
        if not ready:
            return None
        with contextlib.suppress(OSError):
            beside = self._path.with_suffix(".tmp")
            beside.write_text(str(at))
            beside.replace(self._path)
        return at

    def _read(self) -> int | None:
        try:
            at = int(self._path.read_text())
        except (OSError, ValueError):
            return None
        return at if at > self._opened_at else None
