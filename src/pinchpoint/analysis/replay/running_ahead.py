"""What a fix is likely to win beyond its replay: a host that is ahead hides what is left of it."""

from collections.abc import Sequence

import numpy as np

from pinchpoint.analysis.replay.apply import LEAST_LAUNCH_NS
from pinchpoint.analysis.replay.blocking import MAIN_LANE
from pinchpoint.analysis.replay.changes import (
    Change,
    DropDeviceOps,
    DropSyncs,
    LimitDeviceOps,
    RemoveHostTime,
    ScaleHostSpans,
)
from pinchpoint.analysis.replay.graph import Graph
from pinchpoint.analysis.replay.ranges import Made
from pinchpoint.trace.arrays import distinct

# What takes away what holds the device up; graphs, merged and fewer launches say what is left.
HOLD_UP = (DropDeviceOps, DropSyncs, RemoveHostTime, ScaleHostSpans)
# Of the step, that the device waits for the host before a fix: less is what steps end with.
HELD_UP_RATIO = 1 / 3
# Of a step after a fix, that the device works: else the host sets its pace.
PACED_BY_DEVICE_RATIO = 0.4
# Of what replay then leaves the device waiting, that is left: 0.23 in the median of 11 fixes of
# programs measured on H100s and H200s (0.03 to 0.46 in ten of them, 2.9 in one).
LEFT_WAITING_RATIO = 1 / 3


def ahead_of_device_ns(before: float, graph: Graph, made: Made) -> float:
    """Of the step after a fix, host time over which the host runs ahead of its device.

    Replay keeps the waits and the order of what it recorded. A host that most of what held the
    device up is taken from is ahead of it by then, so that the rest is hidden as well.
    """
    waited = max(before - float(graph.op_duration_ns.sum()) / graph.steps, 0.0)
    held_up = waited >= HELD_UP_RATIO * before and 2 * made.host_ns < waited
    if not held_up or made.device_ns < PACED_BY_DEVICE_RATIO * made.step_ns:
        return 0.0
    return (1 - LEFT_WAITING_RATIO) * made.host_ns


def bare_launches_ns(graph: Graph) -> float:
    """What starting the device work of a step takes at least, on the thread of the steps."""
    nodes = distinct(graph.op_node)
    nodes = nodes[graph.lane[nodes] == MAIN_LANE]
    return float(np.minimum(graph.own_ns[nodes], LEAST_LAUNCH_NS).sum()) / graph.steps


def limited_ns(graph: Graph, changes: Sequence[Change]) -> float:
    """Time of a step in operations that changes bring to the limit of the machine."""
    rows = [c.device_ops for c in changes if isinstance(c, LimitDeviceOps)]
    if not rows:
        return 0.0
    at = np.isin(graph.op_rows, np.concatenate(rows))
    return float(graph.op_duration_ns[at].sum()) / graph.steps
