"""What would the step be if something were different: graph, simulator, changes."""

from pinchpoint.analysis.replay.changes import (
    Change,
    DropDeviceOps,
    DropSyncs,
    GraphLaunches,
    MoveToOwnStream,
    ReduceLaunches,
    RemoveHostTime,
    RemoveRecordingCost,
    ScaleDeviceOps,
    ScaleHostSpans,
)

__all__ = [
    "Change",
    "DropDeviceOps",
    "DropSyncs",
    "GraphLaunches",
    "MoveToOwnStream",
    "ReduceLaunches",
    "RemoveHostTime",
    "RemoveRecordingCost",
    "ScaleDeviceOps",
    "ScaleHostSpans",
]
