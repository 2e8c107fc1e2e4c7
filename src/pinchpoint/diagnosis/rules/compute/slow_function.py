"""A function passes over memory several times as often as it needs, and nothing else says why.

## What it looks for
Elementwise and reducing operators that one call of a function runs in a row, with the backward pass
of that call. Together they need their inputs read once for each reduction and their results
written once; tensors in between need not exist. Named is a function whose rows take three times
that, if one pass each would make the device work at least 20 % of the step less. The same of a
function whose operators of any kind together take three times their limits, though none of them
alone is worth so much. It yields to every other finding that explains the same time. Shapes and
Python functions have to be recorded.

## Why it matters
Norms, losses, masks and metrics written by hand are a dozen kernels that each read and write
everything. None of them is slow by itself, so no operator shows it.

## How to fix it
Use the library's fused operation, or compile the function.

## When to ignore it
Where operators need the whole result of the one before them, and cannot be one kernel.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.causal.limits import needed_limits
from pinchpoint.analysis.causal.passes import own_functions
from pinchpoint.analysis.host.frames import frame_of
from pinchpoint.analysis.replay import DropDeviceOps, LimitDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.functions import FAR_RATIO, far_functions, share_of_step
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import SHAPES_AND_STACKS
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Mask, Rows, distinct
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops", "host_ops"),
    record=SHAPES_AND_STACKS,
    residual=True,
    knobs=("compile",),
    advice=NO_HINT,
)

# Of the step: where no other way is known, only much is worth the search. A whole row is known less
# well than an operator (0.15 there).
LEAST_GAIN_RATIO = 0.2
MOST_TOLD = 2  # the engine drops those that other findings explain
KNOWN_RATIO = 0.9  # of a function's device time must have a limit, or their sum says nothing
OF_ONE_RATIO = 0.15  # of the step: an operator that alone is worth that is slow-operator's
FEWEST_OPERATORS = 3  # of different kinds: fewer are a matter of slow-operator


def check(trace: Trace) -> Iterator[Found | Small]:
    """Functions far from one pass, most gain first."""
    far = list(far_functions(trace, lambda row: row.turns == 1))
    worth = [one for one in far if share_of_step(trace, one.saving_ns) >= LEAST_GAIN_RATIO]
    for one in worth[:MOST_TOLD]:
        yield Found(
            summary=(
                f"{one.name} takes {duration(one.work.ns_per_step)} of the device's time a step in"
                f" {one.work.count:.0f} kernels that each pass over memory; one pass for each row"
                f" of them would take {duration(one.needs_ns)}"
            ),
            evidence=one.evidence,
            cost_ns_per_step=one.work.ns_per_step,
            changes=one.changes,
            location=one.work.place,
            fix="Use the library's fused operation, or compile the function",
            hint="@torch.compile  # on the function",
            confidence="low",
        )
    if not worth:
        if far:
            yield Small(share_of_step(trace, far[0].saving_ns), LEAST_GAIN_RATIO)
        yield from _far_by_operators(trace)


def _far_by_operators(trace: Trace) -> Iterator[Found | Small]:
    """The function whose operators, each at its limit, would take the most less."""
    ops = trace.device_ops
    assert ops is not None
    function = np.where(device_ops_in_steps(trace), own_functions(trace), -1)
    found = distinct(function[function >= 0])
    saving = [_beyond_ns(trace, function == name) for name in found.tolist()]
    share = share_of_step(trace, max(saving, default=0))
    if share < LEAST_GAIN_RATIO:
        yield Small(share, LEAST_GAIN_RATIO)
        return
    name = int(found[int(np.argmax(saving))])
    mine, limits = function == name, needed_limits(trace)
    work = device_work(trace, mine, "its device time")
    assert work is not None
    rows, frame = np.flatnonzero(mine), frame_of(trace.names[name])
    text = f"{frame.function} ({frame.file}:{frame.line})" if frame else trace.names[name]
    needs = per_step(trace, round(float(limits.at_limit_ns[rows].sum())))
    again = limits.repeated[rows]
    yield Found(
        summary=(
            f"{text} takes {duration(work.ns_per_step)} of the device's time a step, where its"
            f" operators, each at its limit, would take {duration(needs)}: most in"
            f" {_most_beyond(trace, rows)}"
        ),
        evidence=(*work.evidence, Evidence("limit of its operators", needs, "ns per step")),
        cost_ns_per_step=work.ns_per_step,
        changes=(
            DropDeviceOps(rows[again]),
            LimitDeviceOps(rows[~again], limits.at_limit_ns[rows[~again]]),
        ),
        location=work.place,
        fix="Look for another way to the same result, or for one that does less in each step",
        confidence="low",
    )


def _beyond_ns(trace: Trace, mine: Mask) -> int:
    """What such device operations of a step take beyond their limits; 0 where they are near."""
    ops, limits, calls = trace.device_ops, needed_limits(trace), launched_calls(trace)
    assert ops is not None
    took = ops["duration_ns"][mine].astype(np.float64)
    known = ~np.isnan(limits.limit_ns[mine])
    if took[known].sum() < KNOWN_RATIO * took.sum():
        return 0
    beyond = took - limits.at_limit_ns[mine]
    kinds: dict[str, float] = {}
    for at, ns in enumerate(np.bincount(calls.which[mine], beyond)[: len(calls.calls)].tolist()):
        if ns:
            name = calls.calls[at].call.name
            kinds[name] = kinds.get(name, 0.0) + ns
    alone = int(per_step(trace, round(max(kinds.values(), default=0.0))))
    if len(kinds) < FEWEST_OPERATORS or share_of_step(trace, alone) >= OF_ONE_RATIO:
        return 0
    whole = float(beyond.sum())
    far = took.sum() >= FAR_RATIO * (took.sum() - whole)
    return int(per_step(trace, round(whole))) if far else 0


def _most_beyond(trace: Trace, rows: Rows) -> str:
    """The operator that most of the time beyond the limits is in."""
    ops, calls = trace.device_ops, launched_calls(trace)
    assert ops is not None
    beyond = ops["duration_ns"][rows] - needed_limits(trace).at_limit_ns[rows]
    most = int(np.bincount(calls.which[rows], beyond).argmax())
    return calls.calls[most].call.name if most < len(calls.calls) else "kernels of no operator"
