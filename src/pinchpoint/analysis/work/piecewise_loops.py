"""Python loops that go through a tensor piece by piece: the same operators for each index.

A loop is a stretch of one call of a function in which the same operators launch work on tensors of
the same sizes, turn after turn, while the index of a view (``x[i]``, a slice) is another one in
each turn. Work inside modules is left out: layers are a loop of another kind. A turn depends on the
one before it if it reads a tensor of a size that turns make, before it has made one, and more of
them than its views give.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.costs.pointwise import result_elements
from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.frames import Owner, owners
from pinchpoint.analysis.host.input_arguments import elements, input_shapes, parsed
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, rows_in_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask, Rows
from pinchpoint.trace.names import rows_named

FEWEST_TURNS = 12  # layers, scales and heads that are handled one by one are fewer, as a rule
LONGEST_TURN = 64  # launching operators: more are a program and not the body of a loop
SAME_RATIO = 0.9  # of the operators follow the turn; the rest comes before and after the loop
_VIEWS = {"aten::select": 2, "aten::slice": 2, "aten::narrow": 2}  # where the index stands


@dataclass(frozen=True, eq=False)
class Loop:
    """One loop in one call of a function."""

    function: int  # row of host_ops
    turns: int
    operators: int  # launching ones in each turn
    rows: Rows  # of device_ops
    depends: bool  # on the turn before


@once_per_trace
def piecewise_loops(trace: Trace) -> tuple[Loop, ...]:
    """The loops of the judged steps, each in the innermost function that holds all its turns."""
    host = trace.host_ops
    if host is None or trace.device_ops is None or not host.known("values").any():
        return ()
    found, taken = [], np.zeros(len(host) + 1, np.bool_)
    view_rows, launch_rows, module = (
        np.flatnonzero(_views(trace)),
        _launching(trace),
        _module(trace),
    )
    frames = _functions(trace)
    edges = host["start_ns"][frames], host.end_ns[frames]
    launched = [np.searchsorted(host["start_ns"][launch_rows], edge) for edge in edges]
    viewed = [np.searchsorted(host["start_ns"][view_rows], edge) for edge in edges]
    enough = launched[1] - launched[0] >= FEWEST_TURNS
    enough &= viewed[1] - viewed[0] >= FEWEST_TURNS
    for at in np.flatnonzero(enough).tolist():
        inside = launch_rows[launched[0][at] : launched[1][at]]
        views = view_rows[viewed[0][at] : viewed[1][at]]
        frame = int(frames[at])
        if taken[inside].any():
            continue
        inside = inside[module[inside] == module[frame]]
        loop = _loop(trace, frame, inside, views) if len(inside) >= FEWEST_TURNS else None
        if loop is not None:
            taken[inside] = True
            found.append(loop)
    return tuple(found)


def _functions(trace: Trace) -> Rows:
    """Calls of functions of the program in the judged steps, innermost first."""
    host = trace.host_ops
    assert host is not None
    mine = (owners(trace) == Owner.USER) & rows_in_steps(trace, host)
    mine &= host["thread"] == steps(trace).thread
    rows = np.flatnonzero(mine)
    innermost: Rows = rows[np.argsort(host["duration_ns"][rows], kind="stable")]
    return innermost


@once_per_trace
def _launching(trace: Trace) -> Rows:
    """Operators that launch device work, in order of time, on the thread of the steps."""
    host, calls = trace.host_ops, launched_calls(trace)
    assert host is not None
    rows = np.unique(calls.operator[device_ops_in_steps(trace)])
    rows = rows[rows < len(host)]
    rows = rows[host["thread"][rows] == steps(trace).thread]
    result: Rows = rows[np.argsort(host["start_ns"][rows], kind="stable")]
    return result


@once_per_trace
def _views(trace: Trace) -> Mask:
    host = trace.host_ops
    assert host is not None
    found: Mask = rows_named(trace, host, lambda name: name in _VIEWS) & host.known("values")
    found &= host["thread"] == steps(trace).thread
    return found


@once_per_trace
def _module(trace: Trace) -> Rows:
    """The innermost module around each host row."""
    host = trace.host_ops
    assert host is not None
    return nearest(parents(host), host["kind"] == HostKind.MODULE)


def _loop(trace: Trace, frame: int, inside: Rows, views: Rows) -> Loop | None:
    host = trace.host_ops
    assert host is not None
    key = np.stack((host["name"][inside], host["shapes"][inside])).astype(np.int64)
    kind = np.unique(key, axis=1, return_inverse=True)[1].reshape(-1)
    period = _period(kind)
    if period is None:
        return None
    turns = len(inside) // period
    if not _goes_through(trace, views, turns):
        return None
    calls, ops = launched_calls(trace), np.flatnonzero(device_ops_in_steps(trace))
    chosen = np.zeros(len(host) + 1, np.bool_)
    chosen[inside[: turns * period]] = True
    which = _which(trace)[inside[period : 2 * period]].tolist()
    turn = [calls.calls[one] for one in which if one < len(calls.calls)]
    given = views[
        (host["start_ns"][views] >= host["start_ns"][inside[period - 1]])
        & (host["start_ns"][views] < host["start_ns"][inside[2 * period - 1]])
    ]
    return Loop(
        function=frame,
        turns=turns,
        operators=period,
        rows=ops[chosen[calls.operator[ops]]],
        depends=_depends(turn, [_size(trace, int(view)) for view in given]),
    )


def _period(kind: Ints) -> int | None:
    for period in range(1, min(LONGEST_TURN, len(kind) // FEWEST_TURNS) + 1):
        if (kind[period:] == kind[:-period]).mean() >= SAME_RATIO:
            return period
    return None


def _goes_through(trace: Trace, views: Rows, turns: int) -> bool:
    """Whether some view has another index in almost each turn."""
    host = trace.host_ops
    assert host is not None
    indices: dict[tuple[int, int], set[str]] = {}
    for row in views.tolist():
        name = trace.text(host, "name", row) or ""
        given = parsed(trace.text(host, "values", row) or "") or ()
        if len(given) > _VIEWS[name]:
            which = (int(host["name"][row]), int(host["shapes"][row]))
            indices.setdefault(which, set()).add(str(given[_VIEWS[name]]))
    return any(len(one) >= SAME_RATIO * turns for one in indices.values())


@once_per_trace
def _which(trace: Trace) -> Ints:
    """Of each host row the distinct call that it is; that of none where it launches nothing."""
    host, calls = trace.host_ops, launched_calls(trace)
    assert host is not None
    found = np.full(len(host) + 1, len(calls.calls), np.int64)
    found[calls.operator] = calls.which
    return found[:-1]


def _size(trace: Trace, view: int) -> int | None:
    """Elements of what ``select`` gives; None for slices: any size."""
    host = trace.host_ops
    assert host is not None
    shape = (input_shapes(trace.text(host, "shapes", view) or "") or (None,))[0]
    given = parsed(trace.text(host, "values", view) or "") or ()
    if trace.text(host, "name", view) != "aten::select" or not shape or len(given) < 2:
        return None
    try:
        dimension = int(given[1]) % len(shape)
    except ValueError:
        return None
    return elements(tuple(n for i, n in enumerate(shape) if i != dimension))  # type: ignore[misc]


def _depends(turn: list[LaunchedCall], views: list[int | None]) -> bool:
    """Whether a turn reads more tensors of a size that it makes than it has views of that size,
    before it has made one; True too where an operator makes nobody knows what."""
    early: Counter[int] = Counter()
    made: set[int] = set()
    for of in turn:
        result = result_elements(of.call) if _product(of) is None else _product(of)
        if result is None:
            return True
        writes_over = of.call.name.rstrip("_").removeprefix("aten::") in ("copy", "fill", "zero")
        read = [of.call.size(i) for i in of.call.tensors()[1 if writes_over else 0 :]]
        early.update(size for size in read if size not in made)
        made.add(result)
    anything = sum(size is None for size in views)
    given = Counter(size for size in views if size is not None)
    carried = {size: early[size] - given[size] for size in made if size > 1}
    return sum(max(many, 0) for many in carried.values()) > anything


def _product(of: LaunchedCall) -> int | None:
    """Elements of what a product makes."""
    at = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}.get(of.call.name)
    if at is None:
        return None
    left, right = of.call.shape(at), of.call.shape(at + 1)
    return None if left is None or right is None else elements((*left[:-1], right[-1]))
