"""What it costs a recorder with stacks to ask in which line a long function calls something.

CPython keeps the lines of a function as one run of differences: to find a line it adds them up from
the beginning of the function. The profiler asks at every call, so that calls far down in a function
take longer to record. That shows in functions that a compiler wrote, which are thousands of lines
without a loop: what passes between their calls grows with each, from 6 to 84 µs over 2,591 calls of
one step. As nothing else grows in code that runs once from top to bottom, all growth is recording.
"""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.frames import is_generated
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Ints

# Of intervals between calls: with fewer, a lookup is microseconds, which other shares cover.
FEWEST = 200
PARTS = 5  # of a function, each with a middle interval; noise does not make five grow in turn


@once_per_trace
def generated_frames(trace: Trace) -> tuple[Ints, Ints, Ints]:
    """Thread, begin and end of each run of a function that a compiler wrote."""
    host = trace.host_ops
    if host is None:
        none = np.zeros(0, np.int64)
        return none, none, none
    written = np.array([*map(is_generated, trace.names), False], np.bool_)[host["name"]]
    rows = np.flatnonzero(written & (host["kind"] == HostKind.PYTHON))
    thread: Ints = host["thread"][rows].astype(np.int64)
    return thread, host["start_ns"][rows].astype(np.int64), host.end_ns[rows]


def lookups_ns(at: Ints, opens: Ints, start_ns: Ints, end_ns: Ints) -> Floats:
    """Of the interval after each of these times of one thread, what looking up a line took.

    ``opens`` is 1 where something begins and -1 where it ends; functions run from ``start_ns``.
    """
    took = np.zeros(len(at))
    if not len(start_ns):
        return took
    depth, lasting = np.cumsum(opens), np.append(np.diff(at), 0)
    for start, end in zip(start_ns.tolist(), end_ns.tolist(), strict=True):
        first = np.searchsorted(at, start, "right") - 1
        last = np.searchsorted(at, end)
        own = first + np.flatnonzero(depth[first:last] == depth[first:last].min(initial=1 << 30))
        took[own] = np.maximum(took[own], _growth_ns(lasting[own]))
    return took


def _growth_ns(lasting: Ints) -> Floats:
    """What intervals grew by, where they grew from part to part; no more than they are."""
    none: Floats = np.zeros(len(lasting))
    if len(lasting) < FEWEST:
        return none
    middles = np.array([np.median(part) for part in np.array_split(lasting, PARTS)])
    if not (np.diff(middles) > 0).all():
        return none
    each: float = (middles[-1] - middles[0]) / (len(lasting) * (PARTS - 1) / PARTS)
    grown: NDArray[np.float64] = np.minimum(each * np.arange(len(lasting)), lasting)
    return grown
