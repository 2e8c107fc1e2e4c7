"""What the system counted of this process, and of the children that it has waited for."""

import os
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


def usage() -> dict[str, Any] | None:
    """Sums since the process began; None where the system does not tell."""
    if resource is None:
        return None
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "user_ns": int(own.ru_utime * 1e9),
        "kernel_ns": int(own.ru_stime * 1e9),
        "page_faults": own.ru_minflt,
        "disk_faults": own.ru_majflt,
        "switches": own.ru_nvcsw,
        "preempted": own.ru_nivcsw,
        "resident_peak_bytes": own.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        "children_ns": int((children.ru_utime + children.ru_stime) * 1e9),
        "threads": _threads(),
        "python_threads": threading.active_count(),
        "cores_allowed": _cores(),
        "alive_ns": time.time_ns() - started_unix_ns(),
        "processes_started": len(_starts_ns),
        "starts_ns": max(_starts_ns) - min(_starts_ns) if _starts_ns else 0,
        **_traffic(),
    }


def started_unix_ns() -> int:
    """When the hooks of this process were loaded: a few milliseconds after it began."""
    return _STARTED_UNIX_NS


_STARTED_UNIX_NS = time.time_ns()
_starts_ns: deque[int] = deque(maxlen=1000)  # of the last processes; more say nothing new


def process_starts() -> None:
    """A process is about to be started with ``multiprocessing``, which is no loader's."""
    _starts_ns.append(time.monotonic_ns())


def _cores() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _threads() -> int | None:
    """Of the process, Python's and others, now."""
    try:
        return sum(1 for _ in Path("/proc/self/task").iterdir())
    except OSError:
        return None


def _traffic() -> dict[str, int]:
    """Bytes that reads and writes asked for, and that came from and went to a disk."""
    names = {
        "rchar": "read_bytes",
        "wchar": "written_bytes",
        "read_bytes": "disk_read_bytes",
        "write_bytes": "disk_written_bytes",
        "syscr": "reads",
        "syscw": "writes",
    }
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return {}
    found = dict(line.split(": ", 1) for line in lines if ": " in line)
    return {names[k]: int(v) for k, v in found.items() if k in names and v.strip().isdigit()}
