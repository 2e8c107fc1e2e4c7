"""What the operating system did to the thread of the steps: some counters, read in microseconds.

They are read by the thread that looks, never by that of the steps: reading a file gives the
interpreter's lock away, and beside a thread that runs Python it takes five milliseconds to come
back.
"""

import os
import resource

from pinchpoint.frozen import dataclass

_THROTTLED = (
    ("/sys/fs/cgroup/cpu.stat", b"throttled_usec ", 1000),  # version 2
    ("/sys/fs/cgroup/cpu/cpu.stat", b"throttled_time ", 1),  # version 1
)


@dataclass(frozen=True)
class Counters:
    """Sums since the start; None: not readable here."""

    queued_ns: int | None = None  # ready to run, and no core was free
    throttled_ns: int | None = None  # the control group had used up its quota
    faults: int | None = None  # pages that had to come from a disk


class HostFacts:
    """Counters of one thread of this process, by the system's number, and of its control group."""

    def __init__(self, thread: int) -> None:
        self._schedule = opened(f"/proc/self/task/{thread}/schedstat")
        self._group, self._word, self._ns = None, b"", 1
        for path, word, ns in _THROTTLED:
            if (found := opened(path)) is not None and word in os.pread(found, 4096, 0):
                self._group, self._word, self._ns = found, word, ns
                break

    def read(self) -> Counters:
        """The present values."""
        return Counters(
            self._queued(),
            self._throttled(),
            resource.getrusage(resource.RUSAGE_SELF).ru_majflt,
        )

    def _queued(self) -> int | None:
        try:
            return (
                None if self._schedule is None else int(os.pread(self._schedule, 64, 0).split()[1])
            )
        except (OSError, ValueError, IndexError):
            return None

    def _throttled(self) -> int | None:
        try:
            if self._group is None:
                return None
            text = os.pread(self._group, 4096, 0)
            return self._ns * int(text.partition(self._word)[2].split(b"\n", 1)[0])
        except (OSError, ValueError):
            return None


def opened(path: str) -> int | None:
    """A descriptor to read a file of counters from again and again; None where there is none."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
