"""Facts that a reader took over as they stood: of the type that everything after relies on."""

import numpy as np

from pinchpoint.errors import HostileFile
from pinchpoint.trace import Trace

# Of one recording; each takes some analyses 0.1 ms, however little it did.
_MOST_THREADS = 1 << 16  # a job of 1,000 ranks with 60 threads each
MOST_DEVICES = 1 << 14  # the largest jobs have as many


def check_facts(trace: Trace) -> None:
    """What a reader took over as it stood has the type that everything after it relies on.

    TypeError for a device that is named by a number, or numbered by a word. Tables check theirs.
    HostileFile for more threads or devices than any job has: some analyses look at each alone.
    """
    for what, held, most in (
        ("threads", len(trace.threads), _MOST_THREADS),
        ("devices", _devices(trace), MOST_DEVICES),
    ):
        if held > most:
            raise HostileFile(
                f"{trace.source.path}: more than {most:,} {what}", hint="record fewer ranks at once"
            )
    for device in trace.devices:
        for value, kind in (
            (device.number, int),
            (device.name or "", str),
            (device.multiprocessors or 0, int),
            (device.memory_bytes or 0, int),
            (device.clock_hz or 0, int | float),
        ):
            if not isinstance(value, kind):
                raise TypeError(f"a device with {value!r}")
    if not isinstance(trace.rank or 0, int) or not isinstance(trace.world_size or 0, int):
        raise TypeError("a rank that is no number")


def _devices(trace: Trace) -> int:
    """How many there are, listed or with work."""
    used = 0
    if trace.device_ops is not None and len(trace.device_ops):
        numbers = trace.device_ops["device"]
        used = len(np.unique(numbers)) if int(numbers.max()) >= MOST_DEVICES else 0
    return max(len(trace.devices), used)
