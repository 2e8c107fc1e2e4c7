"""The host side: cores, memory, disk and the pressure on them."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

from pinchpoint.frozen import dataclass
from pinchpoint.monitor.sample import Missing, Sample

_CGROUP = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
T = TypeVar("T")
TREE_EVERY_S = 1.0  # finding the processes of a run reads every process of the machine
SHORTEST_S = 0.05  # kernel counters move in steps of 10 ms; rates over less are noise


@dataclass(frozen=True)
class _Totals:
    """Counters that only grow; rates are differences of two of them."""

    at_ns: int
    cpu_busy_s: float | None
    cpu_all_s: float | None
    run_cpu_s: float | None
    switches: int | None
    disk_bytes: int | None
    disk_reads: int | None
    throttled_s: float | None
    pressure_s: float | None


# What psutil raises where there is no /proc (a sandbox, a container of a kind) beside its own.
NOT_TOLD = (psutil.Error, OSError, IndexError)
NO_PROC = "the system does not tell: is /proc mounted?"


def told(ask: Callable[[], T]) -> T | None:
    """What the system says, or None where it does not."""
    try:
        return ask()
    except NOT_TOLD:
        return None


class HostSource:
    """Samples the machine, and the process tree below ``root_pid`` if given."""

    def __init__(self, root_pid: int | None = None) -> None:
        self.missing = Missing()
        self._root_pid = root_pid
        self._run_cpu_by_pid: dict[int, float] = {}
        self._tree: list[psutil.Process] = []
        self._pids_seen = {os.getpid()}
        self._tree_at_s = float("-inf")
        self._last = self._totals([])

    def read(self, unix_ns: int) -> list[Sample]:
        """One sample; rates are means since the last look."""
        tree = self.run_processes()
        now, then = self._totals(tree), self._last
        seconds = (now.at_ns - then.at_ns) / 1e9
        values: dict[str, float | None] = dict(_memory(self.missing))
        if seconds >= SHORTEST_S:
            values |= _rates(then, now, seconds)
            self._last = now
        values["runnable_count"] = _runnable()
        if self._root_pid is not None:
            values["run_memory_bytes"] = sum(filter(None, map(_resident, tree)))
        return [Sample(unix_ns, None, {k: float(v) for k, v in values.items() if v is not None})]

    def run_processes(self) -> list[psutil.Process]:
        """The processes of the run, as of a second ago at most."""
        now_s = time.monotonic()
        if self._root_pid is not None and now_s - self._tree_at_s >= TREE_EVERY_S:
            self._look_at_tree(now_s)
        return self._tree

    def run_pids(self) -> set[int]:
        """Every process that the run has had so far, the newest ones included.

        The driver still lists a process for a moment after it has ended. Until it is told what to
        follow, the run is this process: with none at all, everybody would be another.
        """
        if self._root_pid is not None:
            self._look_at_tree(time.monotonic())
        return self._pids_seen

    def _look_at_tree(self, now_s: float) -> None:
        assert self._root_pid is not None
        self._tree, self._tree_at_s = _tree(self._root_pid), now_s
        self._pids_seen.update(process.pid for process in self._tree)

    def follow(self, root_pid: int) -> None:
        """From now on, the run is the process tree below this process."""
        self._root_pid, self._tree_at_s = root_pid, float("-inf")

    def close(self) -> None:
        """Nothing is held."""

    def _totals(self, tree: list[psutil.Process]) -> _Totals:
        times, disk = told(psutil.cpu_times), told(psutil.disk_io_counters)
        stats = told(psutil.cpu_stats)
        spent = sum(times) - getattr(times, "guest", 0.0) if times else None
        idle = times.idle + getattr(times, "iowait", 0.0) if times else 0.0
        return _Totals(
            at_ns=time.monotonic_ns(),
            cpu_busy_s=None if spent is None else spent - idle,
            cpu_all_s=spent,
            run_cpu_s=self._run_cpu(tree),
            switches=stats.ctx_switches if stats else None,
            disk_bytes=disk.read_bytes if disk else None,
            disk_reads=disk.read_count if disk else None,
            throttled_s=_throttled_s(),
            pressure_s=_pressure_s(),
        )

    def _run_cpu(self, tree: list[psutil.Process]) -> float | None:
        """CPU time of the run so far; processes that ended keep what they had used."""
        if self._root_pid is None:
            return None
        for process in tree:
            try:
                times = process.cpu_times()
            except NOT_TOLD:
                continue
            self._run_cpu_by_pid[process.pid] = times.user + times.system
        return sum(self._run_cpu_by_pid.values())


def _tree(root_pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(root_pid)
        return [root, *root.children(recursive=True)]
    except NOT_TOLD:
        return []


def _rates(then: _Totals, now: _Totals, seconds: float) -> dict[str, float | None]:
    def rate(before: float | None, after: float | None) -> float | None:
        if before is None or after is None:
            return None
        return max(after - before, 0.0) / seconds

    all_cores, busy = (
        rate(a, b) for a, b in ((then.cpu_all_s, now.cpu_all_s), (then.cpu_busy_s, now.cpu_busy_s))
    )
    return {
        "cpu_ratio": busy / all_cores if all_cores and busy is not None else None,
        "cpu_cores_used": rate(then.run_cpu_s, now.run_cpu_s),
        "context_switches_per_s": rate(then.switches, now.switches),
        "disk_read_bytes_per_s": rate(then.disk_bytes, now.disk_bytes),
        "disk_reads_per_s": rate(then.disk_reads, now.disk_reads),
        "cgroup_throttled_ratio": rate(then.throttled_s, now.throttled_s),
        "cpu_pressure_ratio": rate(then.pressure_s, now.pressure_s),
    }


def _memory(missing: Missing) -> dict[str, float]:
    values: dict[str, float] = {}
    memory = told(psutil.virtual_memory)
    if memory is None:
        missing.note(None, ("host_memory_total_bytes", "host_memory_used_bytes"), NO_PROC)
        return values
    total, used = memory.total, memory.total - memory.available
    limit, current = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is not None and limit < total and current is not None:
        total, used = limit, current
    values["host_memory_total_bytes"], values["host_memory_used_bytes"] = total, used
    try:
        values["swap_used_bytes"] = psutil.swap_memory().used
    except OSError as error:  # containers without /proc/vmstat
        missing.note(None, ("swap_used_bytes",), str(error))
    return values


def _resident(process: psutil.Process) -> int | None:
    try:
        return int(process.memory_info().rss)
    except NOT_TOLD:
        return None


def _runnable() -> float | None:
    text = _read(_PROC / "stat") or ""
    for line in text.splitlines():
        if line.startswith("procs_running "):
            return float(line.split()[1])
    return None


def _throttled_s() -> float | None:
    """Time this control group was not allowed to run, for want of quota (cgroup v2)."""
    text = _read(_CGROUP / "cpu.stat") or ""
    for line in text.splitlines():
        if line.startswith("throttled_usec "):
            return float(line.split()[1]) / 1e6
    return None


def _pressure_s() -> float | None:
    """Time in which at least one task waited for a core (pressure stall information)."""
    text = _read(_PROC / "pressure/cpu") or ""
    for line in text.splitlines():
        if line.startswith("some ") and "total=" in line:
            return float(line.rsplit("total=", 1)[1]) / 1e6
    return None


def _number(path: Path) -> int | None:
    text = (_read(path) or "").strip()
    return int(text) if text.isdigit() else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
