"""The model: one frozen :class:`Trace` of typed columns that every importer fills.

Read ``tables.py`` first: it is the data dictionary.
"""

from pinchpoint.trace.kinds import ApiKind, DeviceKind, FlowKind, HostKind, MemoryKind, Severity
from pinchpoint.trace.names import Names
from pinchpoint.trace.run_samples import RunSamples
from pinchpoint.trace.snapshot import (
    AllocatorAction,
    BlockState,
    Frame,
    Mark,
    MemorySnapshot,
    Stacks,
)
from pinchpoint.trace.table import Table, empty_table, once_per_table, table
from pinchpoint.trace.tables import TABLES, Column
from pinchpoint.trace.trace import (
    BothBranches,
    CompiledCalls,
    Device,
    DeviceSetting,
    ExpertNote,
    GraphCapture,
    Jacobian,
    LaunchTimes,
    LoaderWorker,
    NodeShares,
    ProfiledLaunch,
    RunCourse,
    RunFacts,
    Source,
    SummaryTable,
    Thread,
    ThreadDeath,
    Trace,
    once_per_trace,
)

__all__ = [
    "TABLES",
    "AllocatorAction",
    "ApiKind",
    "BlockState",
    "BothBranches",
    "Column",
    "CompiledCalls",
    "Device",
    "DeviceKind",
    "DeviceSetting",
    "ExpertNote",
    "FlowKind",
    "Frame",
    "GraphCapture",
    "HostKind",
    "Jacobian",
    "LaunchTimes",
    "LoaderWorker",
    "Mark",
    "MemoryKind",
    "MemorySnapshot",
    "Names",
    "NodeShares",
    "ProfiledLaunch",
    "RunCourse",
    "RunFacts",
    "RunSamples",
    "Severity",
    "Source",
    "Stacks",
    "SummaryTable",
    "Table",
    "Thread",
    "ThreadDeath",
    "Trace",
    "empty_table",
    "once_per_table",
    "once_per_trace",
    "table",
]
