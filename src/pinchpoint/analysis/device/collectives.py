"""Collectives of one rank: how much each moved, how fast, and how much of it nothing hid.

One rank's time includes waiting for the others, so only the fastest call tells about the link.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.launches import issued
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps
from pinchpoint.hardware.dtypes import bytes_of
from pinchpoint.trace import DeviceKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Ints, Rows
from pinchpoint.trace.intervals import covered_before, flatten

# ------------------------------------------------------------------------------------------------
# What a collective was asked to do: kind, message size, process group, sequence number.
#
# Sizes and bandwidths follow nccl-tests' PERFORMANCE.md. ``algbw`` is message size over time,
# where the message of an all-gather is what each rank has afterwards and that of a reduce-scatter
# what each has before. ``busbw`` multiplies by the traffic that each link sees for it.


_MOST_ELEMENTS = 1 << 48  # beyond any memory; such a number is damage

# Traffic per link for one byte of message, for n ranks.
_BUS_FACTORS: Mapping[str, Callable[[Floats], Floats]] = MappingProxyType(
    {
        "allreduce": lambda n: 2 * (n - 1) / n,
        "allgather": lambda n: (n - 1) / n,
        "reduce_scatter": lambda n: (n - 1) / n,
        "alltoall": lambda n: (n - 1) / n,
        "broadcast": np.ones_like,
        "reduce": np.ones_like,
        "sendrecv": np.ones_like,
        "send and receive": np.ones_like,
        "send": np.ones_like,
        "recv": np.ones_like,
    }
)


@dataclass(frozen=True)
class Arguments:
    """The arguments of one collective; None where the recording does not say."""

    kind: str  # allreduce, allgather, …
    bytes: int | None = None  # message size
    dtype: str | None = None
    group: str | None = None  # name of the process group
    group_description: str | None = None
    group_ranks: str | None = None  # as written; long lists are cut by the writer
    group_size: int | None = None
    sequence: int | None = None  # of the group; the same on all ranks
    peer: int | None = None  # other rank of a send or receive, by its number in the whole job


@once_per_trace
def collective_arguments(trace: Trace) -> dict[tuple[int, int], Arguments]:
    """Arguments by the values of ``collective`` and ``collective_args`` (-1 for null)."""
    ops = trace.device_ops
    if ops is None:
        return {}
    kinds, texts = ops.filled("collective", -1), ops.filled("collective_args", -1)
    rows = np.flatnonzero((kinds >= 0) | (texts >= 0))
    pairs = set(zip(kinds[rows].tolist(), texts[rows].tolist(), strict=True))
    return {pair: _arguments(trace, *pair) for pair in pairs}


def _arguments(trace: Trace, kind: int, text: int) -> Arguments:
    verb = trace.names[kind] if kind >= 0 else "other"
    given = _decoded(trace.names[text]) if text >= 0 else {}
    gathers = verb in ("allgather", "gather")
    elements = _number(given.get("Out msg nelems" if gathers else "In msg nelems"))
    width = bytes_of(str(given.get("dtype")))
    size = elements * width if elements and width and elements < _MOST_ELEMENTS else None
    if size is None:
        size = _number(given.get("message_bytes"))  # nsys: the payload of NCCL's own ranges
    return Arguments(
        kind=verb,
        bytes=size,
        dtype=_text(given.get("dtype")),
        group=_text(given.get("Process Group Name")) or _communicator(given),
        group_description=_text(given.get("Process Group Description")),
        group_ranks=_text(given.get("Process Group Ranks")),
        group_size=_number(given.get("Group size")),
        sequence=_number(given.get("Seq")),
        peer=_number(given.get({"send": "Dst Rank", "recv": "Src Rank"}.get(verb, ""))),
    )


def bus_factor(kinds: NDArray[np.str_], group_size: Ints) -> Floats:
    """busbw over algbw of each collective; nan where kind or group size has none."""
    factor = np.full(len(kinds), np.nan)
    for kind, of in _BUS_FACTORS.items():
        mine = (kinds == kind) & (group_size > 1)
        factor[mine] = of(group_size[mine].astype(float))
    return factor


def _decoded(text: str) -> dict[str, Any]:
    try:
        given = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return {}
    return given if isinstance(given, dict) else {}


def _communicator(given: dict[str, Any]) -> str | None:
    number = _number(given.get("communicator"))  # nsys
    return None if number is None else f"communicator {number}"


def _number(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 19:
        value = int(value)
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62
    return value if usable else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


# ------------------------------------------------------------------------------------------------
# Collectives of one rank: how much each moved, how fast, and how much of it nothing hid.


@dataclass(frozen=True, eq=False)
class Collectives:
    """Collectives that the judged steps issued; arrays have one element each, in time order."""

    rows: Rows  # of device_ops
    step: Ints  # position of the judged step
    bytes: Ints  # message size; 0 where not recorded
    group_size: Ints  # ranks in the group; 0 where not recorded
    duration_ns: Ints
    exposed_ns: Ints  # time of each during which this rank computed nothing
    kind: NDArray[np.str_]  # allreduce, allgather, …

    def bus_bytes_per_s(self) -> Floats:
        """Bus bandwidth of each call; nan where size, group or traffic is not known."""
        known = (self.bytes > 0) & (self.duration_ns > 0)
        rate = self.bytes / np.where(known, self.duration_ns, 1) * 1e9
        return np.where(known, rate * bus_factor(self.kind, self.group_size), np.nan)


@once_per_trace
def collectives(trace: Trace) -> Collectives | None:
    """The collectives of the judged steps; None where there are none."""
    ops = trace.device_ops
    if ops is None or not len(ops):
        return None
    step = judged_steps(trace).step_of(issued(trace).start_ns)
    rows = np.flatnonzero((ops["kind"] == DeviceKind.COLLECTIVE) & device_ops_in_steps(trace))
    if not len(rows):
        return None
    computing = ops["kind"] == DeviceKind.KERNEL
    busy = flatten(ops["start_ns"][computing], ops.end_ns[computing])
    start, end = ops["start_ns"][rows], ops.end_ns[rows]
    known = collective_arguments(trace)
    kinds, texts = ops.filled("collective", -1)[rows], ops.filled("collective_args", -1)[rows]
    hidden = covered_before(busy, end) - covered_before(busy, start)
    asked = [known[pair] for pair in zip(kinds.tolist(), texts.tolist(), strict=True)]
    return Collectives(
        rows,
        step[rows],
        np.array([a.bytes or 0 for a in asked], np.int64),
        np.array([a.group_size or 0 for a in asked], np.int64),
        end - start,
        end - start - hidden,
        np.array([a.kind for a in asked], np.str_),
    )
