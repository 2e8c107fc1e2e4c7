"""The edits that replay understands: what a fix does to the recorded events.

Rows are positions in the tables of the trace that is replayed; they are numpy int arrays.
A change applies to every step it has rows in.
"""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Rows


@dataclass(frozen=True, eq=False)
class DropSyncs:
    """The host no longer waits in these ``api_calls`` (nor makes them)."""

    api_calls: Rows


@dataclass(frozen=True, eq=False)
class ScaleHostSpans:
    """The host time of these ``host_ops`` (children included, waits for the device left out)
    takes ``factor`` of what it took; 0 removes it, or moves it off the thread."""

    host_ops: Rows
    factor: float


@dataclass(frozen=True, eq=False)
class RemoveHostTime:
    """The host does not spend these stretches of time, whatever was open on its threads; of the
    mean step, nor ``beyond_ns`` in longer steps of the run that were not recorded."""

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    beyond_ns: int = 0


@dataclass(frozen=True, eq=False)
class AddHostTime:
    """The host works ``ns`` longer before each of these ``api_calls``: what a fix itself takes."""

    api_calls: Rows
    ns: int


@dataclass(frozen=True, eq=False)
class ScaleDeviceOps:
    """These ``device_ops`` take ``factor`` of their time: another ceiling, dtype or layout.

    One factor for all, or one for each row.
    The fix leaves ``flops_left`` of their FLOPs and ``bytes_left`` of their bytes, as shares: all
    of them where the same work is done at a higher rate.
    """

    device_ops: Rows
    factor: float | NDArray[np.float64]
    flops_left: float = 1.0
    bytes_left: float = 1.0


@dataclass(frozen=True, eq=False)
class LimitDeviceOps:
    """These ``device_ops`` take no longer than ``limit_ns``, one number for each row: what their
    work needs."""

    device_ops: Rows
    limit_ns: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DropDeviceOps:
    """These ``device_ops`` and the calls that launched them disappear."""

    device_ops: Rows


@dataclass(frozen=True, eq=False)
class MergeDeviceOps:
    """The ``device_ops`` of each ``group`` become one launch: a batch, one copy of many pieces.

    The first of a group does the work of all; the others and their launches disappear. ``group``
    has a number 0..n-1 for each row. ``own_weights``: each launch reads weights of its own (those
    of its expert), which one launch has to read as well.
    """

    device_ops: Rows
    group: NDArray[np.int64]
    own_weights: bool = False


@dataclass(frozen=True, eq=False)
class ReduceLaunches:
    """The launches of these ``device_ops`` cost the host only ``factor`` of their time, operator
    overhead included, and so do gaps between them; the device work stays."""

    device_ops: Rows
    factor: float


@dataclass(frozen=True, eq=False)
class GraphLaunches:
    """These ``device_ops`` are launched by one graph launch a step; host work for them vanishes
    and the device runs them back to back."""

    device_ops: Rows


@dataclass(frozen=True, eq=False)
class MoveToOwnStream:
    """These ``device_ops`` (copies, collectives) overlap with other work as far as their
    dependencies allow."""

    device_ops: Rows


@dataclass(frozen=True)
class RemoveRecordingCost:
    """The profiler's own work on the host is taken out."""


Change = (
    DropSyncs
    | ScaleHostSpans
    | RemoveHostTime
    | AddHostTime
    | ScaleDeviceOps
    | LimitDeviceOps
    | DropDeviceOps
    | MergeDeviceOps
    | ReduceLaunches
    | GraphLaunches
    | MoveToOwnStream
    | RemoveRecordingCost
)
