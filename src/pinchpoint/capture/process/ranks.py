"""All ranks of a job record the same steps, or the same time.

By steps: the first rank decides, the others read it. Ranks of a synchronous job are at most one
step apart, so a step a little ahead is in time for everyone. The decision travels as a small file
of the run folder; a rank that cannot see it (another machine with its own disk) decides for itself,
late.

By time: each rank leaves a word in the run folder when its recording could begin. Once all have,
every rank begins a little after the latest of these words, which all of them read alike. Who hears
nothing for long enough (another machine, a rank that ended) begins alone.
"""

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pinchpoint.capture.settings import REQUEST_EVERY_NS, Requests
from pinchpoint.frozen import dataclass
from pinchpoint.run_folder.layout import PROCESSES

# ------------------------------------------------------------------------------------------------
# Which process of a job this is.


_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_WORLD = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")


@dataclass(frozen=True)
class Identity:
    """Rank and place; a program that is no distributed job is rank 0 of 1."""

    rank: int
    world_size: int
    local_rank: int
    host: str
    pid: int
    launched: bool  # a launcher says which rank this is

    @property
    def stem(self) -> str:
        """Beginning of the names of this process's files."""
        return f"rank{self.rank:05d}of{self.world_size:05d}.{self.host}.{self.pid}"


def identity(environ: Mapping[str, str] = os.environ) -> Identity:
    """What the launcher's variables say; torch.distributed has the last word if it is running."""
    rank, world = _first(environ, _RANK), _first(environ, _WORLD)
    launched = rank is not None
    told = _from_torch()
    if told is not None:
        rank, world = told
    return Identity(
        rank=rank or 0,
        world_size=max(world or 1, (rank or 0) + 1),
        local_rank=_first(environ, _LOCAL) or 0,
        host=re.sub(r"[^A-Za-z0-9-]", "-", os.uname().nodename)[:60] or "host",
        pid=os.getpid(),
        launched=launched,
    )


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = environ.get(name, "")
        if value.isascii() and value.isdecimal() and len(value) < 9:
            return int(value)
    return None


def _from_torch() -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank()), int(distributed.get_world_size())
    except (AttributeError, RuntimeError):
        pass
    return None


AHEAD = 3  # steps between the decision and the recording
ALONE_AFTER = 60  # steps that a rank waits for the decision once it would have decided itself


class Agreement:
    """At which edge this rank should open its recording, or do what else ``name`` says; may be
    asked again for a later one."""

    def __init__(self, folder: Path, identity: Identity, name: str = "open") -> None:
        self._path = folder / PROCESSES / f"{name}-at-step.txt"
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

    def asked(self, edge: int, requests: Requests, step_ns: int) -> bool:
        """Whether one that somebody asks for is to begin: the first rank hears it for all."""
        new = False
        if self.pending is None:
            if not requests.due():
                return False
            new = self.decides and requests.new()
        ahead = AHEAD + 3 * REQUEST_EVERY_NS // max(step_ns, 1)  # others look once a second
        return self.due(edge, new, ahead)

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


def all_here(folder: Path, identity: Identity) -> bool:
    """Whether every rank of the job has written of itself in this folder: all of them can read in
    it what one decides."""
    names = (folder / PROCESSES).glob(f"rank*of{identity.world_size:05d}.*")
    with contextlib.suppress(OSError):
        return len({path.name.partition("of")[0] for path in names}) >= identity.world_size
    return False


PATIENCE_S = 20.0  # a rank's start-up may lag behind by seconds
AHEAD_S = 0.5  # from the last word to the beginning; every rank looks more often than that
LOOK_EVERY_S = 0.05  # ten looks within AHEAD_S, also on a slow shared disk


def begin_together(
    folder: Path,
    identity: Identity,
    ranks: int,
    attempt: int,
    end: threading.Event,
    over: Callable[[], bool] = lambda: False,
) -> bool:
    """Wait until all ``ranks`` that record are ready; whether they are.

    ``end`` is set when the program ends, and cuts every wait short; so does ``over``, which says
    that there is no use in waiting any more.
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
        if over() or end.wait(LOOK_EVERY_S):
            return False
    return False


def _words(place: Path, attempt: int) -> list[float]:
    found = []
    for path in place.glob(f"ready-{attempt}.*.time"):
        with contextlib.suppress(OSError, ValueError):
            found.append(float(path.read_text()))
    return found
