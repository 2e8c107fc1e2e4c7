"""On which memory nodes of the machine the cores, threads and memory of this process are.

``/proc`` says where each thread ran last and may run, and on which node each page lies; ``/sys``
which node a core belongs to, and how far nodes are from each other (10: its own).
"""

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

NODES, PROCESS = Path("/sys/devices/system/node"), Path("/proc/self")
_PAGES = re.compile(r" N(\d+)=(\d+)")
_PAGE_SIZE = re.compile(r" kernelpagesize_kB=(\d+)")
# Fields of /proc/self/task/*/stat behind the name (proc(5)): utime, stime, processor
_USER, _KERNEL, _LAST_CORE = 11, 12, 36


def cpu_nodes(nodes: Path = NODES) -> list[int] | None:
    """Memory nodes that the cores of this process belong to; None where the system has no list."""
    found, allowed = _node_of_core(nodes), _may_run_on(0)
    return sorted({node for core, node in found.items() if core in allowed}) or None


@cache
def placement(nodes: Path = NODES, process: Path = PROCESS) -> dict[str, Any] | None:
    """Bytes and CPU time by node, as they are now; None with one node, or where nobody tells.

    Looked at once, after a recording: the kernel goes through all pages, 0.5 ms a GB of huge ones.
    """
    node_of = _node_of_core(nodes)
    if len(set(node_of.values())) < 2:
        return None
    try:
        held = _bytes_by_node((process / "numa_maps").read_text())
        ran, pinned = _time_by_node(process / "task", node_of)
        distances = [
            [int(far) for far in (nodes / f"node{node}/distance").read_text().split()]
            for node in sorted(set(node_of.values()))
        ]
    except (OSError, ValueError, IndexError):
        return None
    return {
        "bytes": {str(node): held[node] for node in sorted(held)},
        "cpu_ticks": {str(node): ran[node] for node in sorted(ran)},
        "pinned_ticks": pinned,
        "distances": distances,
    }


def _node_of_core(nodes: Path) -> dict[int, int]:
    """Empty where the system has no list, or one that cannot be read."""
    found: dict[int, int] = {}
    for node in nodes.glob("node[0-9]*"):
        try:
            cores = _numbers((node / "cpulist").read_text())
        except (OSError, ValueError):
            return {}
        found |= dict.fromkeys(cores, int(node.name.removeprefix("node")))
    return found


def _numbers(ranges: str) -> set[int]:
    """``0-3,8`` as a set."""
    found: set[int] = set()
    for part in ranges.strip().split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1)) if first else set()
    return found


def _bytes_by_node(numa_maps: str) -> dict[int, int]:
    """Of memory that belongs to no file: tensors, heaps and stacks."""
    found: dict[int, int] = {}
    for line in numa_maps.splitlines():
        size = _PAGE_SIZE.search(line)
        if " anon=" not in line or " file=" in line or size is None:
            continue
        for node, pages in _PAGES.findall(line):
            found[int(node)] = found.get(int(node), 0) + int(pages) * int(size[1]) * 1024
    return found


def _time_by_node(tasks: Path, node_of: dict[int, int]) -> tuple[dict[int, int], int]:
    """CPU time of all threads by the node that each ran on last, in ticks; and of those of them
    that may run on one node only."""
    ran: dict[int, int] = {}
    pinned = 0
    for task in tasks.iterdir():
        try:
            fields = (task / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        ticks, node = int(fields[_USER]) + int(fields[_KERNEL]), node_of[int(fields[_LAST_CORE])]
        ran[node] = ran.get(node, 0) + ticks
        if {node_of.get(core) for core in _may_run_on(int(task.name))} == {node}:
            pinned += ticks
    return ran, pinned


def _may_run_on(thread: int) -> set[int]:
    try:
        return os.sched_getaffinity(thread) if hasattr(os, "sched_getaffinity") else set()
    except OSError:
        return set()
