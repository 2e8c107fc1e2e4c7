"""Collectives of one rank: how much each moved, how fast, and how much of it nothing hid.

Bandwidths follow nccl-tests' PERFORMANCE.md: ``algbw`` is bytes over time; ``busbw`` multiplies by
the traffic each link sees, 2(n-1)/n for all-reduce and (n-1)/n for gather, scatter and all-to-all.
One rank's time includes waiting for the others, so only the fastest call tells about the link.
"""

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.in_steps import judged_steps
from pinchpoint.analysis.launches import issued
from pinchpoint.trace import DeviceKind, Trace, once_per_trace
from pinchpoint.trace.intervals import covered_before, flatten

Rows = NDArray[np.intp]
Ints = NDArray[np.int64]

# As c10d spells types (c10::ScalarType names).
_TYPE_BYTES = {
    "Float": 4, "Int": 4, "Long": 8, "Double": 8, "Half": 2, "BFloat16": 2, "Bool": 1, "Byte": 1,
    "Char": 1, "Short": 2, "Float8_e4m3fn": 1, "Float8_e5m2": 1,
}  # fmt: skip
_GATHERING = ("allgather", "all_gather", "_allgather_base", "allgather_into_tensor_coalesced")


@dataclass(frozen=True, eq=False)
class Collectives:
    """Collectives that the judged steps issued; arrays have one element each, in time order."""

    rows: Rows  # of device_ops
    step: Ints  # position of the judged step
    bytes: Ints  # message size; 0 where not recorded
    group_size: Ints  # ranks in the group; 0 where not recorded
    duration_ns: Ints
    exposed_ns: Ints  # time of each during which this rank computed nothing

    def bus_bytes_per_s(self) -> NDArray[np.float64]:
        """Bus bandwidth of each all-reduce-like call; nan where size or group is not known."""
        known = (self.bytes > 0) & (self.group_size > 1) & (self.duration_ns > 0)
        n = np.where(known, self.group_size, 2).astype(float)
        rate = self.bytes / np.where(known, self.duration_ns, 1) * 1e9
        return np.where(known, rate * 2 * (n - 1) / n, np.nan)


@once_per_trace
def collectives(trace: Trace) -> Collectives | None:
    """The collectives of the judged steps; None where there are none."""
    ops = trace.device_ops
    if ops is None or not len(ops):
        return None
    step = judged_steps(trace).step_of(issued(trace).start_ns)
    rows = np.flatnonzero((ops["kind"] == DeviceKind.COLLECTIVE) & (step >= 0))
    if not len(rows):
        return None
    computing = ops["kind"] == DeviceKind.KERNEL
    busy = flatten(ops["start_ns"][computing], ops.end_ns[computing])
    start, end = ops["start_ns"][rows], ops.end_ns[rows]
    hidden = covered_before(busy, end) - covered_before(busy, start)
    size, group = _arguments(trace, rows)
    return Collectives(rows, step[rows], size, group, end - start, end - start - hidden)


def _arguments(trace: Trace, rows: Rows) -> tuple[Ints, Ints]:
    """Message size and group size of each collective, from the arguments it was recorded with."""
    ops = trace.device_ops
    assert ops is not None
    args = ops.filled("collective_args", -1)[rows]
    parsed = {a: _parse(trace.names[a]) for a in np.unique(args).tolist() if a >= 0}
    size = np.array([parsed.get(a, (0, 0))[0] for a in args.tolist()], np.int64)
    group = np.array([parsed.get(a, (0, 0))[1] for a in args.tolist()], np.int64)
    return size, group


def _parse(text: str) -> tuple[int, int]:
    try:
        args = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return 0, 0
    if not isinstance(args, dict):
        return 0, 0
    gathers = str(args.get("Collective name", "")) in _GATHERING
    elements = args.get("Out msg nelems" if gathers else "In msg nelems")
    width = _TYPE_BYTES.get(str(args.get("dtype")), 0)
    group = args.get("Group size")
    size = elements * width if isinstance(elements, int) else 0
    return size, group if isinstance(group, int) else 0
