"""Is this machine ours while we measure?"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUSY_LOAD = 0.10  # load a CPU above which timings are disturbed


def disturbances() -> tuple[str, ...]:
    """What goes on here that has nothing to do with the measurement; ask before it starts."""
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    if load / cpus <= BUSY_LOAD:
        return ()
    return (f"the machine was busy before the measurement: load {load:.1f} on {cpus} CPUs",)


@contextmanager
def measuring() -> Iterator[tuple[str, ...]]:
    """Hold the machine's measurement lock; yields a warning if another benchmark holds it.

    A hint, not a wall: two benchmarks at once disturb each other, they do not mix their files.
    """
    path = Path(tempfile.gettempdir()) / f"pinchpoint-bench-{os.getuid()}.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        yield (f"cannot tell whether another benchmark is running ({error.strerror})",)
        return
    try:
        yield () if _locked(descriptor) else ("another benchmark measured here at the same time",)
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
