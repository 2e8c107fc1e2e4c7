"""Collectives of one rank: how much each moved, how fast, and how much of it nothing hid.

One rank's time includes waiting for the others, so only the fastest call tells about the link.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.launches import issued
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps
from pinchpoint.frozen import dataclass
from pinchpoint.hardware.dtypes import bytes_of
from pinchpoint.trace import DeviceKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Ints, Rows
from pinchpoint.trace.intervals import Intervals, covered_before, flatten

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


# ------------------------------------------------------------------------------------------------
# Kernels that run beside collectives, against the same kernels alone.
#
# A collective takes multiprocessors and memory bandwidth from what is computed beside it. Where
# the same kernel, launched alike, also ran alone in the recording, the difference is known.


ALONE_RATIO = 0.05  # of a kernel's time beside a collective: no more is alone
BESIDE_RATIO = 0.5  # of its time: with less, the kernel is mostly what it is alone
FEWEST_ALONE = 3  # runs that a median is taken of
MOST_KINDS = 200  # of kernels, those with most time


@dataclass(frozen=True, eq=False)
class Slowed:
    """Kernels that are alike and ran beside collectives."""

    rows: Rows  # of device_ops
    alone_ratio: float  # what they would take alone, as a share of what they took; below 1


def slowed_by(trace: Trace, collectives: Rows) -> tuple[Slowed, ...]:
    """Kernels that these collectives (rows of ``device_ops``) slow down, most time first."""
    ops = trace.device_ops
    if ops is None or not len(collectives):
        return ()
    kernels = np.flatnonzero(ops["kind"] == DeviceKind.KERNEL)
    everything = np.flatnonzero(ops["kind"] == DeviceKind.COLLECTIVE)
    beside_any = _share(trace, kernels, everything)
    beside_these = _share(trace, kernels, collectives)
    took = ops["duration_ns"][kernels]
    found = []
    for alike in _alike(trace, kernels):
        alone = alike[beside_any[alike] <= ALONE_RATIO]
        beside = alike[beside_these[alike] >= BESIDE_RATIO]
        if len(alone) < FEWEST_ALONE or not len(beside):
            continue
        ratio = float(np.median(took[alone]) / max(np.median(took[beside]), 1))
        if ratio < 1:
            found.append(Slowed(kernels[beside], ratio))
    return tuple(found)


def _share(trace: Trace, kernels: Rows, collectives: Rows) -> Floats:
    """Share of each kernel's time in which one of the collectives ran."""
    ops = trace.device_ops
    assert ops is not None
    busy: Intervals = flatten(ops["start_ns"][collectives], ops.end_ns[collectives])
    start, end = ops["start_ns"][kernels], ops.end_ns[kernels]
    inside = covered_before(busy, end) - covered_before(busy, start)
    share: Floats = inside / np.maximum(end - start, 1)
    return share


def _alike(trace: Trace, kernels: Rows) -> Iterator[Rows]:
    """Positions of kernels with one name and grid, for those with most time."""
    ops = trace.device_ops
    assert ops is not None
    grid = ops.filled("grid", -1)[kernels].astype(np.int64)
    key = ops["name"][kernels].astype(np.int64) * (len(trace.names) + 1) + grid + 1
    _, which = np.unique(key, return_inverse=True)
    total = np.bincount(which, ops["duration_ns"][kernels])
    order = np.argsort(which, kind="stable")
    edges = np.searchsorted(which[order], np.arange(len(total) + 1))
    for kind in np.argsort(-total, kind="stable")[:MOST_KINDS].tolist():
        yield order[edges[kind] : edges[kind + 1]]
