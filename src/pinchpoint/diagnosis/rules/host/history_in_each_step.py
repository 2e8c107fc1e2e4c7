"""Each step goes through all that the steps before it have left.

## What it looks for
Operators on the device, or of a program without one, that are given a tensor that is longer in each
recorded step than in the one before, by the same number of elements, and at least 16 times as long
as that: what all steps so far have left, joined and gone through again. Needs three whole steps
with shapes; what later steps take beyond these is a matter of `growing-steps`. Where products or
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
from collections.abc import Iterator, Sequence

import numpy as np

from pinchpoint.analysis.costs import cost_of
from pinchpoint.analysis.host.input_arguments import Shape, elements
from pinchpoint.analysis.host.on_cpu import computes_on_cpu, cpu_operators
from pinchpoint.analysis.replay import Change, ScaleDeviceOps, ScaleHostSpans
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, distinct_calls, launched_calls
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import CPU_AND_DEVICE, SHAPES_AND_STACKS
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Floats, Ints, Rows, distinct
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=SHAPES_AND_STACKS, advice=NO_HINT)

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
    if computes_on_cpu(trace):
        yield from _on_cpu(trace)
        return
    ops = trace.device_ops
    if ops is None:
        raise NotChecked("the recording has no device ops", CPU_AND_DEVICE)
    launched = launched_calls(trace)
    calls, which = launched.calls, launched.which
    growing, ratio = _growing(calls, which, _step_of_ops(trace))
    work = device_work(trace, ratio[which] < 1, "going through it") if growing else None
    if work is None:
        return
    left = ratio[which[work.rows]]
    share = float(np.average(left, weights=np.maximum(ops["duration_ns"][work.rows], 1)))
    change = ScaleDeviceOps(work.rows, left, flops_left=share, bytes_left=share)
    yield _found(calls, growing, (work.place, work.ns_per_step, work.evidence), change)


def _on_cpu(trace: Trace) -> Iterator[Found]:
    """The same of operators that the CPU computes; the first step of a window is whole there."""
    host, found = trace.host_ops, steps(trace)
    assert host is not None
    rows = np.flatnonzero(cpu_operators(trace).called)
    at = np.searchsorted(found.host_start_ns, host["start_ns"][rows], "right") - 1
    inside = (at >= 0) & (host["start_ns"][rows] < np.append(found.host_end_ns, 0)[at])
    calls, which = distinct_calls(trace, rows)
    growing, ratio = _growing(calls, which, np.where(inside & (found.how != "none"), at, -1))
    grown = np.zeros(len(host), np.bool_)
    grown[rows[ratio[which] < 1]] = True
    spans = host_spans(trace, grown, "going through it") if growing else None
    if spans is None:
        return
    left = np.zeros(len(host))
    left[rows] = ratio[which]
    share = float(np.average(left[spans.rows], weights=host["duration_ns"][spans.rows] + 1))
    change = ScaleHostSpans(spans.rows, share)
    yield _found(calls, growing, (spans.place, spans.ns_per_step, spans.evidence), change)


def _growing(
    calls: Sequence[LaunchedCall], which: Rows, step: Ints
) -> tuple[list[_Growing], Floats]:
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


def _found(
    calls: Sequence[LaunchedCall],
    growing: list[_Growing],
    work: tuple[Location | None, int, tuple[Evidence, ...]],
    change: Change,
) -> Found:
    place, ns_per_step, evidence = work
    largest = max(growing, key=lambda of: of.elements)
    return Found(
        summary=(
            f"A tensor of {largest.elements:,} elements is gone through in each step"
            f"{f' in {place}' if place else ''}, {largest.added:,} longer each time:"
            f" {duration(ns_per_step)} of each recorded step, and more as the run goes on"
        ),
        evidence=(
            Evidence("elements", largest.elements, "count"),
            Evidence("added by a step", largest.added, "count"),
            Evidence(
                "operators that grow with it",
                _names(calls, [i for of in growing for i in of.calls]),
                "",
            ),
            *evidence,
        ),
        cost_ns_per_step=ns_per_step,
        changes=(change,),
        location=place,
        fix="Compute it only where it is used, or go on from the result of the step before",
        hint="if step % 100 == 0:\n    metric = compute(history)  # where it is written",
        confidence="medium",
    )


def _names(calls: Sequence[LaunchedCall], mine: list[int]) -> str:
    return ", ".join(sorted({calls[i].call.name.removeprefix("aten::") for i in mine}))


def _step_of_ops(trace: Trace) -> Ints:
    """The whole step that each device operation runs in; -1 for none."""
    ops, found = trace.device_ops, steps(trace)
    assert ops is not None
    at = np.searchsorted(found.start_ns, ops["start_ns"], "right") - 1
    inside = (at >= 0) & (ops["start_ns"] < found.end_ns[at]) & found.complete[at]
    return np.where(inside, at, -1)


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


def _grows(calls: Sequence[LaunchedCall], by_step: dict[int, list[int]]) -> _Growing | None:
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
