"""Which process of a job this is."""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

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
