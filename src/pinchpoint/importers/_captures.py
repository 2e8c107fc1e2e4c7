"""Launches into a graph that is being captured: they run nothing."""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.trace import ApiKind, Names, Table


def in_capture(calls: Table, names: Names) -> NDArray[np.bool_]:
    """Calls inside a graph capture: what they launch runs later, if at all."""
    inside = np.zeros(len(calls), np.bool_)
    builds = np.flatnonzero(calls["kind"] == ApiKind.GRAPH_BUILD)
    began: dict[int, int] = {}
    for row in builds.tolist():
        name, thread = names[int(calls["name"][row])], int(calls["thread"][row])
        if "BeginCapture" in name:
            began[thread] = row
        elif "EndCapture" in name:
            first = began.pop(thread, 0)  # a capture that was under way when recording began
            inside[first:row] |= calls["thread"][first:row] == thread
    for thread, first in began.items():
        inside[first:] |= calls["thread"][first:] == thread
    return inside
