"""Each step goes through all that the steps before it have left.

## What it looks for
Operators on the device that are given a tensor that is longer in each recorded step than in the one
before, by the same number of elements, and at least 16 times as long as that: what all steps so far
have left, joined and gone through again. Needs three whole steps with shapes. Where products or
attention grow with it, as with the cache of a model that generates, the history is what the step is
about, and nothing is said.

## Why it matters
The work of a step grows with its number, and that of a run with its square. What one recording
shows is the state after so many steps; later it is more.

## How to fix it
Compute it only where it is used (every 100 steps, say, with the line that is written), or go on
from the result of the step before: sums, counts, a histogram of fixed size in place of a sort of
all values.

## When to ignore it
Where the whole history is needed in each step, and the run is short.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.costs import cost_of
from pinchpoint.analysis.host.input_arguments import Shape, elements
from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES_AND_STACKS
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Ints
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops", "device_ops"), record=SHAPES_AND_STACKS, advice=NO_HINT)

FEWEST_STEPS = 3  # of which two grow alike
FEWEST_TURNS = 16  # steps that the history is of: gone through in 17 / 2 times what a step adds
_ABOUT_THE_HISTORY = ("attention", "softmax")

_Kind = tuple[str, tuple[str, ...], tuple[int, ...]]  # name, types, dimensions of each tensor


@dataclass(frozen=True, eq=False)
class _Growing:
    """Distinct calls of one kind, one in each step."""

    calls: tuple[int, ...]
    elements: int  # of the growing tensor, in the last of them
    added: int  # from step to step


def check(trace: Trace) -> Iterator[Found]:
    """Operators whose input grows from step to step."""
    calls, ops = launched_calls(trace), trace.device_ops
    step = _step_of_ops(trace)
    if len(np.unique(step[step >= 0])) < FEWEST_STEPS:
        raise NotChecked(f"fewer than {FEWEST_STEPS} whole steps")
    if not any(of.call.tensors() for of in calls.calls):
        raise NotChecked("the recording has no shapes of inputs")
    growing = [found for of in _kinds(trace, step).values() if (found := _grows(trace, of))]
    mine = [i for of in growing for i in of.calls]
    if not mine or ops is None or any(_is_about_it(calls.calls[i]) for i in mine):
        return
    ratio = np.ones(len(calls.calls) + 1)
    for of in growing:
        ratio[list(of.calls)] = of.added / of.elements
    work = device_work(trace, ratio[calls.which] < 1, "going through it")
    if work is None:
        return
    largest = max(growing, key=lambda of: of.elements)
    left = ratio[calls.which[work.rows]]
    share = float(np.average(left, weights=np.maximum(ops["duration_ns"][work.rows], 1)))
    yield Found(
        summary=(
            f"A tensor of {largest.elements:,} elements is gone through in each step"
            f"{f' in {work.place}' if work.place else ''}, {largest.added:,} longer each time:"
            f" {duration(work.ns_per_step)} of each recorded step, and more as the run goes on"
        ),
        evidence=(
            Evidence("elements", largest.elements, "count"),
            Evidence("added by a step", largest.added, "count"),
            Evidence("operators that grow with it", _names(calls.calls, mine), ""),
            *work.evidence,
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=(ScaleDeviceOps(work.rows, left, flops_left=share, bytes_left=share),),
        location=work.place,
        fix="Compute it only where it is used, or go on from the result of the step before",
        hint="if step % 100 == 0:\n    metric = compute(history)  # where it is written",
        confidence="medium",
    )


def _names(calls: tuple[LaunchedCall, ...], mine: list[int]) -> str:
    return ", ".join(sorted({calls[i].call.name.removeprefix("aten::") for i in mine}))


def _step_of_ops(trace: Trace) -> Ints:
    """The whole step that each device operation runs in; -1 for none."""
    ops, found = trace.device_ops, steps(trace)
    assert ops is not None
    at = np.searchsorted(found.start_ns, ops["start_ns"], "right") - 1
    inside = (at >= 0) & (ops["start_ns"] < found.end_ns[at]) & found.complete[at]
    return np.where(inside, at, -1)


def _kinds(trace: Trace, step: Ints) -> dict[_Kind, dict[int, list[int]]]:
    """Distinct calls that come in one step alone, by kind and step."""
    calls = launched_calls(trace)
    known = step >= 0
    first = np.full(len(calls.calls) + 1, np.iinfo(np.int64).max)
    last = np.full(len(calls.calls) + 1, -1)
    np.minimum.at(first, calls.which[known], step[known])
    np.maximum.at(last, calls.which[known], step[known])
    found: dict[_Kind, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i in np.flatnonzero(first == last).tolist():
        if i < len(calls.calls):
            found[_kind(calls.calls[i])][int(first[i])].append(i)
    return found


def _kind(of: LaunchedCall) -> _Kind:
    call = of.call
    sizes = tuple(len(call.shape(i) or ()) for i in range(len(call.shapes)))
    return call.name, call.dtypes, sizes


def _grows(trace: Trace, by_step: dict[int, list[int]]) -> _Growing | None:
    """The calls, if there is one in each whole step, and its tensors grow as said."""
    calls, at = launched_calls(trace).calls, sorted(by_step)
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
    return _Growing(mine, whole, added) if whole >= FEWEST_TURNS * added else None


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
