"""Processes on a device: whose they are, and what they are called."""

from collections.abc import Collection, Sequence

import psutil

from pinchpoint.monitor.sample import DeviceProcess


def others(
    running: Sequence[DeviceProcess], own_pids: Collection[int]
) -> tuple[DeviceProcess, ...] | None:
    """Processes that are not ours; None if the driver's numbers mean nothing here.

    In a container the driver may use the host's process numbers. Then none of ours is in the list,
    and nobody can say which entries are foreign.
    """
    if not running:
        return ()
    foreign = tuple(p for p in running if p.pid not in own_pids)
    return None if own_pids and len(foreign) == len(running) else foreign


def process_name(pid: int) -> str | None:
    """The program's name, None if the process is gone or hidden (another namespace or user)."""
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return None
