"""Call stacks for flame-graph tools: collapsed lines, and speedscope's file format.

Both say own time: what a stack took without what it called, in nanoseconds.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.frames import frame_of
from pinchpoint.analysis.tables.call_tree import NO_NODE, CallTree, call_tree
from pinchpoint.json_text import encoded
from pinchpoint.report.plain import plain
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Ints

NAME_LIMIT = 400  # characters
SPEEDSCOPE_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def collapsed(trace: Trace, *, device: bool = False) -> str:
    """One line a stack, ``thread;outer;inner 1234``: own host time or device time."""
    tree = call_tree(trace)
    labels = [label.replace(";", ":") for label in _labels(trace, tree)]
    own = _own(tree, device=device)
    lines = (f"{';'.join(labels[n] for n in path)} {own[path[-1]]}\n" for path in _paths(tree, own))
    return "".join(lines)


def speedscope(trace: Trace) -> bytes:
    """Host time, and device time if there is any, as sampled profiles in one file."""
    tree = call_tree(trace)
    labels = _labels(trace, tree)
    numbers: dict[str, int] = {}
    frame = [numbers.setdefault(label, len(numbers)) for label in labels]
    profiles = []
    for name, device in (("host time", False), ("device time", True)):
        own = _own(tree, device=device)
        paths = list(_paths(tree, own))
        if not paths:
            continue
        profiles.append(
            {
                "type": "sampled",
                "name": name,
                "unit": "nanoseconds",
                "startValue": 0,
                "endValue": sum(int(own[path[-1]]) for path in paths),
                "samples": [[frame[node] for node in path] for path in paths],
                "weights": [int(own[path[-1]]) for path in paths],
            }
        )
    document = {
        "$schema": SPEEDSCOPE_SCHEMA,
        "exporter": "pinchpoint",
        "name": plain(trace.source.path),
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(label) for label in numbers]},
        "profiles": profiles,
    }
    return encoded(document)


def _frame(label: str) -> dict[str, str | int]:
    frame = frame_of(label)
    place: dict[str, str | int] = {"name": label}
    return place if frame is None else place | {"file": frame.file, "line": frame.line}


def _labels(trace: Trace, tree: CallTree) -> list[str]:
    return [plain(label, NAME_LIMIT) for label in tree.labels(trace)]


def _own(tree: CallTree, *, device: bool) -> Ints:
    return tree.own(tree.device_ns if device else tree.host_ns)


def _paths(tree: CallTree, own: Ints) -> Iterator[tuple[int, ...]]:
    """The nodes from the thread down to each node that has time of its own."""
    for node in np.flatnonzero(own).tolist():
        path = [node]
        while tree.parent[path[-1]] != NO_NODE:
            path.append(int(tree.parent[path[-1]]))
        yield tuple(reversed(path))
