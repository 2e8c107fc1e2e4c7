"""What would the step be if something were different: graph, simulator, changes."""

from pinchpoint.analysis.replay.changes import (
    AddHostTime,
    Change,
    DropDeviceOps,
    DropSyncs,
    GraphLaunches,
    LimitDeviceOps,
    MergeDeviceOps,
    MoveToOwnStream,
    ReduceLaunches,
    RemoveHostTime,
    RemoveRecordingCost,
    ScaleDeviceOps,
    ScaleHostSpans,
)

__all__ = [
    "AddHostTime",
    "Change",
    "DropDeviceOps",
    "DropSyncs",
    "GraphLaunches",
    "LimitDeviceOps",
    "MergeDeviceOps",
    "MoveToOwnStream",
    "ReduceLaunches",
    "RemoveHostTime",
    "RemoveRecordingCost",
    "ScaleDeviceOps",
    "ScaleHostSpans",
]
