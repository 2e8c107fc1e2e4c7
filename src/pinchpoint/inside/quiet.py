"""What a program costs whatever its neighbours do: CPU time, waiting for a CPU, instructions.

Everything is of this process, a running total, and None where the system does not tell.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
import time
from typing import Any, Callable, Dict, Tuple, TypeVar

_PMUS = "/sys/bus/event_source/devices"  # a folder for each source of events that the kernel has
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}  # asm/unistd.h of each
_ATTRIBUTE_BYTES = 64  # PERF_ATTR_SIZE_VER0 of linux/perf_event.h, which every kernel takes
_INHERIT, _USER_ONLY = 1 << 1, (1 << 5) | (1 << 6)  # bits of perf_event_attr: kernel, hypervisor
_INSTRUCTIONS = (0, 1)  # PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS


# Both take some 10 µs; a thread that loses its CPU between them has it back after a millisecond and
# more (2.9 of 12 at load 13 on 2 CPUs).
_AT_ONCE_NS = 200_000
_MOST_READINGS = 3
_Totals = TypeVar("_Totals")
Threads = Dict[int, Tuple[int, int]]
_TASKS = "/proc/self/task"
_MOST_THREADS = 64  # reading one takes 1.6 µs: all of them are read well within ``_AT_ONCE_NS``


def at_once(totals: Callable[[], _Totals]) -> tuple[int, _Totals]:
    """The time, and running totals at that time: both are read again where the thread lost its CPU
    in between, as that wait would be in one of them only. Else a quarter of all waiting at load 13
    on 2 CPUs was in no step of its own."""
    for _ in range(_MOST_READINGS):
        before_ns = time.perf_counter_ns()
        found = totals()
        now_ns = time.perf_counter_ns()
        if now_ns - before_ns < _AT_ONCE_NS:
            break
    return now_ns, found


def queue_clock() -> Callable[[], int | None]:
    """Nanoseconds that the calling thread has waited for a CPU while it could have run.

    From Linux's schedstat, of the thread that asks first; None to others. A thread's wall time
    less this is what it would take with a CPU of its own.
    """
    thread = threading.get_ident()
    try:
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return _unknown

    def waited_ns() -> int | None:
        if threading.get_ident() != thread:
            return None
        try:
            return int(os.pread(file, 100, 0).split()[1])
        except (OSError, ValueError, IndexError):  # the program closed files that it did not open
            return None

    return _unknown if waited_ns() is None else waited_ns


def other_threads() -> Callable[[], Threads | None]:
    """CPU time and waiting for a CPU, in nanoseconds, of the process's threads but the calling one.

    By number, from Linux's schedstat. A thread of a pool waits for the slowest of its neighbours,
    and where others take the machine's CPUs that one waits for a CPU, which is no wait of its own.
    """
    files: dict[int, int] = {}
    known = 0  # threads when they were listed, as the folder says it

    def listed() -> None:
        for file in files.values():
            os.close(file)
        files.clear()
        for name in os.listdir(_TASKS):
            if int(name) != threading.get_native_id():
                path = os.path.join(_TASKS, name, "schedstat")
                files[int(name)] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def totals() -> Threads | None:
        nonlocal known
        try:
            now = os.stat(_TASKS).st_nlink
            if now > _MOST_THREADS:
                return None
            if now != known:
                listed()
                known = now
            read = [(t, os.pread(file, 100, 0).split()) for t, file in files.items()]
            return {t: (int(words[0]), int(words[1])) for t, words in read}
        except (OSError, ValueError, IndexError):  # a thread ended; the next call lists them again
            known = 0
            return None

    return totals


def between(before: Threads | None, now: Threads | None) -> tuple[int | None, int | None]:
    """CPU time of the busiest thread since ``before``, and for how long all waited for a CPU."""
    if before is None or now is None:
        return None, None
    gained = [(t - a, q - b) for i, (t, q) in now.items() for a, b in [before.get(i, (0, 0))]]
    return max((t for t, _ in gained), default=0), sum(q for _, q in gained)


def instruction_counter(kind: tuple[int, int] = _INSTRUCTIONS) -> Callable[[], int | None]:
    """Instructions of this thread, and of threads that it starts, outside of the kernel.

    By ``perf_event_open``; ``kind`` is the type and number of the event. Unknown on machines
    without such a counter (most virtual ones) and where it is not permitted.
    """
    number = _PERF_EVENT_OPEN.get(os.uname().machine) if hasattr(os, "uname") else None
    counts_hardware = any(
        os.path.exists(os.path.join(_PMUS, name)) for name in ("cpu", "cpu_core", "armv8_pmuv3_0")
    )
    if number is None or sys.platform != "linux" or (kind == _INSTRUCTIONS and not counts_hardware):
        return _unknown
    import ctypes

    attribute = ctypes.create_string_buffer(128)
    struct.pack_into("IIQ", attribute, 0, kind[0], _ATTRIBUTE_BYTES, kind[1])
    struct.pack_into("Q", attribute, 40, _INHERIT | _USER_ONLY)
    call: Any = ctypes.CDLL(None).syscall
    file = call(number, attribute, 0, -1, -1, 0)
    if file < 0:
        return _unknown
    return lambda: int.from_bytes(os.read(file, 8), sys.byteorder)


def _unknown() -> None:
    return None


class Work:
    """What the process takes from here on, without the imports of this thread.

    Wall and CPU time (that of ended children too), and waiting for a CPU; in nanoseconds.
    """

    def __init__(self) -> None:
        self._queue_ns = queue_clock()
        self._thread, self._importing = threading.get_ident(), False
        self._imports = (0, 0, 0)
        self._begun = self._now()

    def _now(self) -> tuple[int, int, int]:
        now_ns, (cpu_ns, queue_ns) = at_once(self._totals)
        return now_ns, cpu_ns, queue_ns

    def _totals(self) -> tuple[int, int]:
        times = os.times()
        children = times.children_user + times.children_system
        return time.process_time_ns() + int(children * 1e9), self._queue_ns() or 0

    def watch_imports(self) -> None:
        """Imports of modules that the program has already cost nothing, as before."""
        machinery: Any = sys.modules["_frozen_importlib"]  # what an import statement calls
        find_and_load = machinery._find_and_load

        def _find_and_load(*args: Any) -> Any:
            if self._importing or threading.get_ident() != self._thread:
                return find_and_load(*args)
            self._importing, begun = True, self._now()
            try:
                return find_and_load(*args)
            finally:
                self._imports = _sum(self._imports, _minus(self._now(), begun))
                self._importing = False

        machinery._find_and_load = _find_and_load

    def so_far(self) -> dict[str, int | None]:
        """By name; ``imports_ns`` is the wall time that was left out."""
        wall_ns, cpu_ns, queue_ns = _minus(_minus(self._now(), self._begun), self._imports)
        known = self._queue_ns is not _unknown
        return {
            "wall_ns": wall_ns,
            "cpu_ns": cpu_ns,
            "queue_ns": queue_ns if known else None,
            "imports_ns": self._imports[0],
        }


_Times = Tuple[int, int, int]


def _minus(a: _Times, b: _Times) -> _Times:
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


def _sum(a: _Times, b: _Times) -> _Times:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]
