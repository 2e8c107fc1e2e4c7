"""Work of the host that names itself, in words, with what to do about it."""

from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.frozen import dataclass


@dataclass(frozen=True)
class Work:
    """Work that names itself, in words."""

    verb: str
    fix: str


NAMED = {
    GapKind.MALLOC: Work(
        "is in calls that allocate or free device memory",
        "Make the memory once and use it again, and do not give it back",
    ),
    GapKind.COMPILE: Work("compiles", "Compile once: keep what is compiled, and its inputs alike"),
    GapKind.CODE_LOAD: Work("loads device code", "Load it before the loop, by one call of each"),
    GapKind.GC: Work("collects garbage", "Collect by hand, every few hundred steps"),
    GapKind.CHECKPOINT: Work(
        "saves or loads tensors",
        "Do it more rarely, or in another thread from a copy in host memory",
    ),
    GapKind.LOGGING: Work("writes logs or files", "Write more rarely, or in another thread"),
}
CALLS_THE_DRIVER = Work(
    "is in calls to the driver", "Do once before the loop what the call prepares"
)
COMPUTES = Work("computes", "")
