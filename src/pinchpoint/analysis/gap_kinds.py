"""Why the device can be idle: the closed list of kinds."""

from enum import IntEnum


class GapKind(IntEnum):
    """What the device waited for, or what the host was doing while it should have fed it."""

    DATA = 1
    SYNC = 2
    AFTER_SYNC = 3
    DISPATCH = 4
    PYTHON = 5
    GRAPH_LAUNCH = 6
    MALLOC = 7
    COPY_CALL = 8
    COMPILE = 9
    CODE_LOAD = 10
    GC = 11
    CHECKPOINT = 12
    LOGGING = 13
    WAIT = 14
    HOST_COLLECTIVE = 15
    AUTOGRAD = 16
    DEPENDENCY = 17
    START_LATENCY = 18
    PROFILER = 19
    UNRECORDED = 20

    @property
    def id(self) -> str:
        """Stable name for documents."""
        return "idle-" + self.name.lower().replace("_", "-")

    @property
    def label(self) -> str:
        """Name for people; read after "device idle: "."""
        return LABELS[self]


LABELS = {
    GapKind.DATA: "host waits for or prepares the next batch",
    GapKind.SYNC: "host blocked in a synchronising call",
    GapKind.AFTER_SYNC: "queue empty after a synchronisation",
    GapKind.DISPATCH: "host dispatches operators",
    GapKind.PYTHON: "host runs Python",
    GapKind.GRAPH_LAUNCH: "host launches a graph",
    GapKind.MALLOC: "driver allocates or frees device memory",
    GapKind.COPY_CALL: "host stages a copy",
    GapKind.COMPILE: "compiling",
    GapKind.CODE_LOAD: "loading device code",
    GapKind.GC: "collecting garbage",
    GapKind.CHECKPOINT: "saving or loading a checkpoint",
    GapKind.LOGGING: "writing logs or files",
    GapKind.WAIT: "host waits for another thread or process",
    GapKind.HOST_COLLECTIVE: "processes communicate through the host",
    GapKind.AUTOGRAD: "hand-over to or from the autograd thread",
    GapKind.DEPENDENCY: "issued in time, waits for other work",
    GapKind.START_LATENCY: "start latency between operations",
    GapKind.PROFILER: "the profiler's own work",
    GapKind.UNRECORDED: "host idle, descheduled or not recorded",
}

# The host was late with work that it could have issued earlier, had it not waited before.
CATCHES_UP = (
    GapKind.DISPATCH,
    GapKind.PYTHON,
    GapKind.GRAPH_LAUNCH,
    GapKind.COPY_CALL,
    GapKind.AUTOGRAD,
    GapKind.START_LATENCY,
    GapKind.UNRECORDED,
)
