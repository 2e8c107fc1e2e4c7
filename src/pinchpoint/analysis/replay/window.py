"""The window of a trace that replay runs, as recorded and without what recording cost."""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.replay.apply import apply
from pinchpoint.analysis.replay.beyond_replay import Replayed, replayed
from pinchpoint.analysis.replay.changes import RemoveRecordingCost
from pinchpoint.analysis.replay.graph import Graph, build
from pinchpoint.analysis.replay.simulate import all_passes, simulate
from pinchpoint.analysis.steps.steps import Steps, steps
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace

MOST_NODES = 12_000  # calls of a replayed window; more steps are left out beyond it
SAME_STEP_RATIO = 0.05  # recorded steps of one kind differ by as much


@dataclass(frozen=True, eq=False)
class Replayable:
    """A trace's graph, and what replaying it unchanged gives against what was recorded."""

    graph: Graph
    counted: NDArray[np.bool_]  # the replayed steps that stand for all
    recorded_ns: float  # their mean period as recorded
    identity_ns: float  # as replayed once, unchanged, from the recorded state
    settled_ns: float  # as replayed unchanged until the window repeats itself
    settled_every_ns: float  # the same for all replayed steps

    @property
    def identity_error(self) -> float:
        """Relative error of the unchanged replay."""
        return self.identity_ns / self.recorded_ns - 1

    def periods_ns(self, graph: Graph, *, every_step: bool = False) -> NDArray[np.int64]:
        """Periods of the counted steps, or of all, when ``graph`` is replayed."""
        periods = np.array(simulate(graph).durations_ns, np.int64)
        return periods if every_step else periods[self.counted]

    def mean_ns(self, graph: Graph, *, every_step: bool = False) -> float:
        """The mean of those periods."""
        return float(self.periods_ns(graph, every_step=every_step).mean())


@once_per_trace
def replayable(trace: Trace) -> Replayable | None:
    """The graph of as many complete steps as are worth replaying; None where it cannot be."""
    found = steps(trace)
    usable = found.complete if found.complete.any() else found.typical
    if trace.api_calls is None or not usable.any():
        return None
    chosen = _window(trace, found, np.flatnonzero(usable))
    graph = build(trace, found.host_start_ns, found.host_end_ns, chosen)
    if graph is None or not len(graph.op_rows):
        return None
    periods = (found.end_ns - found.start_ns)[chosen]
    counted = _counted(found.typical[chosen], periods, found.typical_ns)
    before = int(found.start_ns[chosen.start])
    first, *_, last = (np.array(done.durations_ns) for done in all_passes(graph, before))
    recorded, identity, settled = (float(of[counted].mean()) for of in (periods, first, last))
    return Replayable(graph, counted, recorded, identity, settled, float(last.mean()))


def _counted(
    typical: NDArray[np.bool_], periods_ns: NDArray[np.int64], typical_ns: int | None
) -> NDArray[np.bool_]:
    """The typical steps without the first, which follows a seam when the window is repeated.

    With it, where the others alone are further from the typical step.
    """
    rest = typical.copy()
    rest[0] = False
    if not rest.any() or typical_ns is None:
        return typical
    apart = [abs(float(periods_ns[of].mean()) - typical_ns) for of in (rest, typical)]
    return rest if apart[0] <= max(apart[1], SAME_STEP_RATIO * typical_ns) else typical


def _window(trace: Trace, found: Steps, usable: NDArray[np.intp]) -> slice:
    """The run of complete steps with most typical ones in it, cut to MOST_NODES calls."""
    breaks = np.flatnonzero(np.diff(usable) > 1) + 1
    longest = max(np.split(usable, breaks), key=lambda run: int(found.typical[run].sum()))
    assert trace.api_calls is not None
    calls = np.sort(trace.api_calls["start_ns"])
    before = np.searchsorted(calls, found.host_start_ns)
    first = int(longest[np.argmax(found.typical[longest])])
    last = first + 1
    while last <= longest[-1] and before[last] - before[first] < MOST_NODES:
        last += 1
    return slice(first, last)


@dataclass(frozen=True, eq=False)
class Clean:
    """The replayable window without recording cost, replayed: what all predictions start from."""

    graph: Graph
    mean_ns: float  # of the counted steps
    every_ns: float  # of all replayed steps

    @property
    def step(self) -> Replayed:
        """The typical one."""
        return replayed(self.graph, self.mean_ns)


@once_per_trace
def clean_window(trace: Trace) -> Clean | None:
    """The window without recording cost; None where it cannot be replayed."""
    base = replayable(trace)
    if base is None or base.settled_ns <= 0:
        return None
    graph = apply(trace, base.graph, (RemoveRecordingCost(),))
    periods = np.array(simulate(graph).durations_ns)
    counted, every = float(periods[base.counted].mean()), float(periods.mean())
    if counted <= 0 or every <= 0:  # steps without work of their own
        return None
    return Clean(graph, counted, every)
