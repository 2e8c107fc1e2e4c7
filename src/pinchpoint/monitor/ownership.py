"""Whose processes are on the device: ours, or somebody else's."""

from collections.abc import Collection, Sequence

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
