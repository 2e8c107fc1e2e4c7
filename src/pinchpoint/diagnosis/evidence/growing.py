"""Operators whose input grows from step to step: a history that is gone through in each of them."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from pinchpoint.analysis.costs import cost_of
from pinchpoint.analysis.host.ancestry import above, parents, subtree_sums, within_rows
from pinchpoint.analysis.host.frames import Owner, frame_of
from pinchpoint.analysis.host.input_arguments import Shape, elements
from pinchpoint.analysis.host.on_cpu import cpu_operators
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, distinct_calls
from pinchpoint.diagnosis.evidence.host_spans import outermost
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Ints, Mask, Rows, distinct
from pinchpoint.trace.names import rows_named

FEWEST_STEPS = 3  # of which two grow alike
FEWEST_TURNS = 16  # steps that the history is of: gone through in 17 / 2 times what a step adds
_ABOUT_THE_HISTORY = ("attention", "softmax")
# Of a call of a library, that is spent in operators whose input grows: the rest is what the library
# does with what these give (a curve of each class of a metric: 30 %), or Python between them.
LEAST_RATIO_OF_CALL = 0.25

_Kind = tuple[str, tuple[str, ...], tuple[int, ...]]  # name, types, dimensions of each tensor


@dataclass(frozen=True, eq=False)
class Growing:
    """Distinct calls of one kind, one in each step."""

    calls: tuple[int, ...]
    elements: int  # of the growing tensor, in the last of them
    added: int  # from step to step


@dataclass(frozen=True, eq=False)
class OnCpu:
    """Growing operators of a program without a device."""

    calls: Sequence[LaunchedCall]
    kinds: tuple[Growing, ...]
    left: Floats  # of rows of host_ops: what of each would take what one step adds; 1 for others
    in_libraries: Mask  # outermost calls of libraries, that are for going through it


@once_per_trace
def growing_on_cpu(trace: Trace) -> OnCpu:
    """Operators that grow; the first step of a window is whole there. Raises NotChecked where
    there are too few steps, or no shapes."""
    host, found = trace.host_ops, steps(trace)
    assert host is not None
    rows = np.flatnonzero(cpu_operators(trace).called)
    at = np.searchsorted(found.host_start_ns, host["start_ns"][rows], "right") - 1
    inside = (at >= 0) & (host["start_ns"][rows] < np.append(found.host_end_ns, 0)[at])
    calls, which = distinct_calls(trace, rows)
    growing, ratio = growing_calls(calls, which, np.where(inside & (found.how != "none"), at, -1))
    left = np.ones(len(host))
    left[rows] = ratio[which]
    products = np.zeros(len(host), np.bool_)
    products[rows] = np.array([*map(_is_about_it, calls), False], np.bool_)[which]
    return OnCpu(calls, tuple(growing), left, _in_libraries(trace, left < 1, products))


def inside_calls_for_history(trace: Trace) -> Mask:
    """Rows of calls of libraries that go through a growing history; none where none is known."""
    assert trace.host_ops is not None
    try:
        calls = growing_on_cpu(trace).in_libraries
    except NotChecked:
        return np.zeros(len(trace.host_ops), np.bool_)
    inside: Mask = within_rows(parents(trace.host_ops), np.flatnonzero(calls))[:-1]
    return inside


def _in_libraries(trace: Trace, grown: Mask, products: Mask) -> Mask:
    """Outermost calls of functions that are not the program's and call none of it, a part of whose
    time is in such operators, and which multiply no matrices."""
    host = trace.host_ops
    assert host is not None
    up = parents(host)
    if not grown.any():
        return grown
    own = rows_named(trace, host, _is_own)
    others = rows_named(trace, host, _is_library) & (subtree_sums(up, own.astype(np.int64)) == 0)
    took = np.where(grown & (above(up, grown) == len(host)), host["duration_ns"], 0)
    rows = np.flatnonzero(outermost(trace, others))
    name = host["name"][rows]
    # Of all calls of a function: others' turns on a core fall on one and not on another.
    grown_ns = np.bincount(name, subtree_sums(up, took)[rows])
    all_ns = np.bincount(name, host["duration_ns"][rows])
    found = np.zeros(len(host), np.bool_)
    mine = (grown_ns > 0) & (grown_ns >= LEAST_RATIO_OF_CALL * all_ns)
    found[rows] = mine[name]
    spoilt: Mask = subtree_sums(up, products.astype(np.int64)) > 0
    return found & ~spoilt


def _is_own(name: str) -> bool:
    frame = frame_of(name)
    return frame is not None and frame.owner is Owner.USER


def _is_library(name: str) -> bool:
    frame = frame_of(name)
    return frame is not None and frame.owner is not Owner.USER


def growing_calls(
    calls: Sequence[LaunchedCall], which: Rows, step: Ints
) -> tuple[list[Growing], Floats]:
    """Calls that grow, and for each call, and none, how much of it what one step adds would take;
    none that grow where the history is what the step is about."""
    if len(distinct(step[step >= 0])) < FEWEST_STEPS:
        raise NotChecked(f"fewer than {FEWEST_STEPS} whole steps")
    if not any(of.call.tensors() for of in calls):
        raise NotChecked("the recording has no shapes of inputs")
    kinds = _kinds(calls, which, step).values()
    growing = [found for of in kinds if (found := _grows(calls, of))]
    ratio = np.ones(len(calls) + 1)
    if any(_is_about_it(calls[i]) for of in growing for i in of.calls):
        return [], ratio
    for of in growing:
        ratio[list(of.calls)] = of.added / of.elements
    return growing, ratio


def _kinds(
    calls: Sequence[LaunchedCall], which: Rows, step: Ints
) -> dict[_Kind, dict[int, list[int]]]:
    """Distinct calls that come in one step alone, by kind and step."""
    known = step >= 0
    first = np.full(len(calls) + 1, np.iinfo(np.int64).max)
    last = np.full(len(calls) + 1, -1)
    np.minimum.at(first, which[known], step[known])
    np.maximum.at(last, which[known], step[known])
    found: dict[_Kind, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i in np.flatnonzero(first == last).tolist():
        if i < len(calls):
            found[_kind(calls[i])][int(first[i])].append(i)
    return found


def _kind(of: LaunchedCall) -> _Kind:
    call = of.call
    sizes = tuple(len(call.shape(i) or ()) for i in range(len(call.shapes)))
    return call.name, call.dtypes, sizes


def _grows(calls: Sequence[LaunchedCall], by_step: dict[int, list[int]]) -> Growing | None:
    """The calls, if there is one in each whole step, and its tensors grow as said."""
    at = sorted(by_step)
    if len(at) < FEWEST_STEPS or at[-1] - at[0] + 1 != len(at):
        return None
    if any(len(by_step[step]) != 1 for step in at):
        return None
    mine = tuple(by_step[step][0] for step in at)
    grown = [
        one
        for i in calls[mine[0]].call.tensors()
        if (one := _elements([calls[call].call.shape(i) for call in mine])) is not None
    ]
    if not grown:
        return None
    whole, added = max(grown)
    return Growing(mine, whole, added) if whole >= FEWEST_TURNS * added else None


def _elements(shapes: list[Shape | None]) -> tuple[int, int] | None:
    """Elements of the last shape and how many each has more than the one before, if that is one
    number and one dimension; None where they do not grow."""
    table = np.array(shapes, np.int64)
    apart = np.diff(table, axis=0)
    if (apart != apart[0]).any() or np.count_nonzero(apart[0]) != 1 or apart[0].max() <= 0:
        return None
    whole, dim = elements(tuple(table[-1].tolist())), int(apart[0].argmax())
    return whole, whole // int(table[-1, dim]) * int(apart[0, dim])


def _is_about_it(of: LaunchedCall) -> bool:
    cost = cost_of(of.call)
    matrix = cost is not None and cost.matrix
    return matrix or any(word in of.call.name for word in _ABOUT_THE_HISTORY)
