"""The window that all pieces of a program are tried on."""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.replay.graph import Graph
from pinchpoint.analysis.replay.predict import corrected_step_ns
from pinchpoint.analysis.replay.window import clean_window, replayable
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace


@dataclass(frozen=True, eq=False)
class ReplayedWindow:
    """The window that predictions replay, without recording cost, and the step it stands for."""

    graph: Graph
    counted: NDArray[np.bool_]  # the replayed steps that stand for all
    mean_ns: float  # of the counted steps, as replayed
    step_ns: int  # the step without the profiler


@once_per_trace
def replayed_window(trace: Trace) -> ReplayedWindow | None:
    """What any number of changes can be tried on; None where the trace cannot be replayed."""
    base, clean, usual = replayable(trace), clean_window(trace), corrected_step_ns(trace)
    if base is None or clean is None or usual is None:
        return None
    return ReplayedWindow(clean.graph, base.counted, clean.mean_ns, usual)
