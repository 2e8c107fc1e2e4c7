"""The host side of a window: calls and step ends in order, and the lanes that they run in.

A *lane* is a set of host threads that hand work to each other and never run user work at the same
time: the thread that launches, and the autograd threads it waits for.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.launches import main_thread
from pinchpoint.trace import ApiKind, Table, Trace
from pinchpoint.trace.arrays import Ints, Rows

MOST_TURNS = 8  # changes between the two threads a step: forward, backward, optimizer, and again
FEWEST_IN_A_TURN = 16  # launches: micro-steps take more turns, but each of them is long
MAIN_LANE = 0  # the thread that runs the steps, and the autograd threads it waits for
NO_DEPENDENCY = -1  # local to the arrays of a graph; the tables never hold it
_GIVES_WORK = (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH, ApiKind.COPY, ApiKind.MEMSET)


@dataclass(frozen=True, eq=False)
class Nodes:
    """Calls and step ends in order of their start."""

    api_rows: Rows
    lane: Rows
    start_ns: Ints
    end_ns: Ints
    kind: NDArray[np.uint8]

    @staticmethod
    def of(calls: Table, rows: Rows, lanes: Rows, step_ends: Ints) -> "Nodes":
        """The calls of these rows and the ends of the steps, merged by start."""
        marks = np.full(len(step_ends), NO_DEPENDENCY, np.intp)
        start = np.concatenate((calls["start_ns"][rows], step_ends))
        end = np.concatenate((calls.end_ns[rows], step_ends))
        order = np.argsort(start, kind="stable")
        return Nodes(
            np.concatenate((rows, marks))[order],
            np.concatenate((lanes, np.full(len(step_ends), MAIN_LANE, np.intp)))[order],
            start[order],
            end[order],
            np.concatenate((calls["kind"][rows], np.zeros(len(step_ends), np.uint8)))[order],
        )


def lanes_of(trace: Trace, rows: Rows, steps: int) -> tuple[Rows, tuple[Rows, ...]]:
    """Lane of each call, and the threads of each lane."""
    calls = trace.api_calls
    assert calls is not None
    threads = calls["thread"][rows].astype(np.intp)
    main = main_thread(trace)
    joined = {main}
    for other in np.unique(threads).tolist():
        if other != main and _take_turns(trace, rows, main, other, steps):
            joined.add(other)
    lane_of: dict[int, int] = dict.fromkeys(joined, 0)
    for thread in np.unique(threads).tolist():
        lane_of.setdefault(thread, len(set(lane_of.values())))
    lanes = np.array([lane_of[t] for t in threads.tolist()], np.intp)
    count = max(lane_of.values()) + 1
    members = tuple(
        np.array(sorted(t for t, at in lane_of.items() if at == lane), np.intp)
        for lane in range(count)
    )
    return lanes, members


def _take_turns(trace: Trace, rows: Rows, main: int, other: int, steps: int) -> bool:
    """Whether two threads launch in turn: backward, while its caller waits.

    Threads that launch side by side change places all the time.
    """
    calls = trace.api_calls
    assert calls is not None
    launching = np.isin(calls["kind"][rows], _GIVES_WORK)
    thread = calls["thread"][rows][launching]
    if not (thread == other).any():
        return False
    order = np.argsort(calls["start_ns"][rows][launching], kind="stable")
    pair = thread[order][np.isin(thread[order], (main, other))]
    changes = int(np.count_nonzero(np.diff(pair)))
    return changes <= max(MOST_TURNS * steps, len(pair) // FEWEST_IN_A_TURN)
