"""Whether a file can be read at all: what its reader needs, against what this process may use."""

import resource
from collections.abc import Iterator
from contextlib import suppress
from ctypes import CDLL
from pathlib import Path

from pinchpoint.errors import OutOfMemory

# Bytes of memory at the peak of ``diagnose`` for each byte of a plain file of 20 MB, rounded down:
# docs/reliability.md has the measurements. What needs more than there is would fail in any case.
PERFETTO_TIMES = 8
ROCPROF_JSON_TIMES = 6  # every entry becomes an object of Python
TABLE_TIMES = 8  # CSV of one operation a line
MEMORY_TIMELINE_TIMES = 10  # numbers in text of a byte or two become such of eight
EXECUTION_TRACE_TIMES = 2  # the text, and at least as much for its values


def must_fit(path: Path, size_bytes: int, times: int) -> None:
    """OutOfMemory before anything is allocated, where ``times`` the size cannot be had."""
    if not may_have(size_bytes * times):
        raise OutOfMemory(path)


def give_back() -> None:
    """Freed memory goes back to the system (glibc): what threads that scanned have freed waits for
    threads to come, a sixth of what a diagnosis of 300 MB of text takes."""
    with suppress(AttributeError, OSError, TypeError):  # other systems have no such call
        CDLL(None).malloc_trim(0)


def may_have(more_bytes: int) -> bool:
    """Whether this process may use so much more."""
    return more_bytes <= min(_limits(), default=more_bytes)


def _limits() -> Iterator[int]:
    """Bytes that this process may still use, by each authority that says so (Linux)."""
    memory = _numbers(Path("/proc/meminfo"), 1 << 10)
    if "MemAvailable" in memory:
        yield memory["MemAvailable"] + memory.get("SwapFree", 0)
    group = Path("/sys/fs/cgroup")  # of a container, or of a job of a cluster
    most = _first_number(group / "memory.max")
    used = _first_number(group / "memory.current")
    if most is not None and used is not None:
        files = _numbers(group / "memory.stat", 1).get("inactive_file", 0)  # given back when asked
        yield most - used + files
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed != resource.RLIM_INFINITY:
        yield allowed - _numbers(Path("/proc/self/status"), 1 << 10).get("VmSize", 0)


def _first_number(path: Path) -> int | None:
    """What a file of one number holds; None where there is none, or it holds a word."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _numbers(path: Path, unit: int) -> dict[str, int]:
    """Lines of ``name: number kB``; empty where there is no such file."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    words = [line.replace(":", " ").split() for line in lines]
    return {w[0]: int(w[1]) * unit for w in words if len(w) > 1 and w[1].isdecimal()}
