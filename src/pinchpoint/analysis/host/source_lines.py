"""Where in the program a host row belongs: frame, module, operator and annotation around it.

The frame is the innermost one of the user's own code; where there is none, of an installed
library. Its line is where that function is defined, because the profiler names a frame when it is
entered; only frames that were already running when recording began carry the line they were at.
The operator or built-in inside the frame says which call it was. A backward node takes the place
of the forward operator it differentiates: rows of the autograd thread have no frames, and on a CPU,
where the thread of the steps runs the nodes, the frame around them is the one that started all.
"""

import re

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest
from pinchpoint.analysis.host.attribution import forward_rows
from pinchpoint.analysis.host.frames import NAMELESS, Owner, frame_of, owners
from pinchpoint.analysis.host.timeline import NO_ROW, HostRows, host_rows
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Mask, NameIds, Rows, distinct

_WRAPPER = "autograd::engine::evaluate_function: "  # says nothing that its child does not say
_STEP_MARKER = re.compile(r"^ProfilerStep#?\d*$")
_MODULE = "nn.Module: "


@dataclass(frozen=True)
class Place:
    """Where a row belongs in the program; None where the trace does not say."""

    file: str | None = None
    line: int | None = None  # where ``function`` is defined
    function: str | None = None
    module: str | None = None
    operator: str | None = None
    annotation: str | None = None
    backward: bool = False  # the place is that of the forward operator


@dataclass(frozen=True, eq=False)
class Places:
    """For each of ``host_rows`` the name position of what is around it, NO_ROW for nothing.

    Arrays have one element more than there are rows, so that NO_ROW looks up as nothing.
    ``operator`` is the outermost one inside the innermost Python frame: what the program called.
    """

    frame: NameIds
    module: NameIds
    operator: NameIds
    annotation: NameIds
    backward: Mask


@once_per_trace
def places(trace: Trace) -> Places:
    """The surroundings of all host rows at once."""
    rows, host = host_rows(trace), trace.host_ops
    n = len(rows)
    if host is None or not n:
        nothing = np.full(n + 1, NO_ROW, np.int32)
        return Places(nothing, nothing, nothing, nothing, np.zeros(n + 1, np.bool_))
    chain = np.where(rows.parent == NO_ROW, n, rows.parent)
    kind, owner = np.zeros(n, np.uint8), np.zeros(n, np.uint8)
    kind[: rows.operators], owner[: rows.operators] = host["kind"], owners(trace)
    frame = nearest(chain, owner == Owner.USER)
    frame = np.where(frame == n, nearest(chain, owner == Owner.LIBRARY), frame)
    module = nearest(chain, kind == HostKind.MODULE)
    marker = _spelt(trace, rows, _STEP_MARKER)
    annotation = nearest(chain, (kind == HostKind.ANNOTATION) & ~marker)
    forward = _forward(trace, rows, chain)
    node = nearest(chain, _spelt(trace, rows, re.compile(f"^{_WRAPPER}")))
    around_node = np.append(frame, n)[node]
    of_node = (node < n) & (frame == around_node)  # or else a frame within the node is
    differentiates = of_node & (np.append(frame, n)[forward] < n)
    frame = np.where(differentiates, n, frame)
    backward = (forward < n) & (frame == n)
    operator = (kind == HostKind.OPERATOR) & ~marker
    return Places(
        frame=_named(rows, _or_of(frame, forward)),
        module=_named(rows, _or_of(module, forward)),
        operator=_named(rows, _called_operator(trace, rows, chain, operator)),
        annotation=_named(rows, annotation),
        backward=np.append(backward, False),
    )


def functions_of(trace: Trace, host: Rows) -> NameIds:
    """Frames around rows as ``Places`` has them; of a generator, a comprehension or a lambda that
    of the function in the same file which runs it, so that one loop is one place."""
    frame = places(trace).frame[host].copy()
    for position in distinct(frame[frame != NO_ROW]).tolist():
        own = frame_of(trace.names[position])
        if own is not None and own.function in NAMELESS:
            mine = frame == position
            around = _named_around(trace, int(host[mine][0]), own.file)
            frame[mine] = position if around is None else around
    return frame


def _named_around(trace: Trace, row: int, file: str) -> int | None:
    """The name of the nearest function of a file around a row; None where there is none."""
    rows = host_rows(trace)
    while row != NO_ROW and row < len(rows):
        position = int(rows.name[row])
        frame = frame_of(trace.names[position])
        if frame and frame.file == file and frame.function not in (*NAMELESS, "<module>"):
            return position
        row = int(rows.parent[row])
    return None


def place_of(trace: Trace, row: int) -> Place:
    """Where one of ``host_rows`` belongs; a row of ``host_ops`` has the same number there."""
    around = places(trace)
    return place(
        trace,
        int(around.frame[row]),
        int(around.module[row]),
        int(around.operator[row]),
        int(around.annotation[row]),
        backward=bool(around.backward[row]),
    )


def place(
    trace: Trace, frame: int, module: int, operator: int, annotation: int, *, backward: bool = False
) -> Place:
    """The words for name positions as ``Places`` has them."""

    def text(position: int) -> str | None:
        return None if position == NO_ROW else trace.names[position]

    found = frame_of(text(frame) or "")
    owner, called = text(module), text(operator)
    return Place(
        file=found.file if found else None,
        line=found.line if found else None,
        function=found.function if found else None,
        module=owner.removeprefix(_MODULE) if owner else None,
        operator=called.removeprefix(_WRAPPER) if called else None,
        annotation=text(annotation),
        backward=backward,
    )


def _called_operator(trace: Trace, rows: HostRows, chain: Rows, operator: Mask) -> Rows:
    """Of the operators around a row that directly enclose each other, the outermost."""
    wrapper = _spelt(trace, rows, re.compile(f"^{_WRAPPER}"))
    operator = operator & ~wrapper
    enclosed = np.append(operator, False)[chain]
    return nearest(chain, operator & ~enclosed)


def _forward(trace: Trace, rows: HostRows, chain: Rows) -> Rows:
    """For rows of the backward pass their forward operator, else ``len(rows)``."""
    n = len(rows)
    inner = nearest(chain, np.arange(n) < rows.operators)  # the host_ops row that a call is in
    forward = np.append(forward_rows(trace), n)
    of = forward[np.minimum(inner, rows.operators)]
    known = (inner < n) & (of < rows.operators) & (of != inner)
    return np.where(known, of, n)


def _or_of(around: Rows, forward: Rows) -> Rows:
    """What is around a row, or else around its forward operator."""
    other: Rows = np.append(around, len(around))[forward]
    return np.where(around == len(around), other, around)


def _spelt(trace: Trace, rows: HostRows, pattern: re.Pattern[str]) -> Mask:
    matches = np.zeros(len(trace.names), np.bool_)
    for position in np.flatnonzero(np.bincount(rows.name, minlength=1)).tolist():
        matches[position] = bool(pattern.search(trace.names[position]))
    found: Mask = matches[rows.name]
    return found


def _named(rows: HostRows, around: Rows) -> NameIds:
    names = np.append(rows.name, np.int32(NO_ROW))  # half the memory of positions of rows
    found: NameIds = names[np.append(around, len(rows))]
    return found
