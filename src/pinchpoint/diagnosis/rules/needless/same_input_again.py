"""A model computes again what it has computed before: its input is the same.

## What it looks for
Modules all of whose calls, in a few steps in turn that `pinchpoint run` watched, were made with the
same values at least twice: the same module, all bits of its tensors, the same weights. They drop
nothing at random, and are given nothing that could not be looked into; other modules were called
with new values meanwhile. What trains has other weights in each step, and so is found where it is
called again within one; what a backward pass computes again for want of memory is left alone, and
so is a loop in which nothing is new: it measures something.

And, where modules were recorded, parametrizations of a weight
(`torch.nn.utils.parametrize`) that are computed several times with nothing of a backward pass or an
optimizer in between: they are given nothing but the weight. Not those that drop at random. One that
iterates at each call (`spectral_norm`) is named, too: its weight is the same, and only its estimate
moves on; kept, it moves on once a pass.

## Why it matters
The answer is known already. A text encoder whose prompt stays while a picture is refined, an image
that is encoded anew for each word about it, tables made from constants, a parametrization
(`torch.nn.utils.parametrize`) that is computed at each use of its weight: the work is real, so that
neither the device nor the host looks idle.

## How to fix it
Call it once, where its input is made, and keep the answer as long as the input stays; gradients
flow back through one answer as through many. `with parametrize.cached():` around a step does it for
weights. The range is from what was new in the watched steps to nothing.

## When to ignore it
Where the input does change, more seldom than every few steps, and the answer is too large to keep;
where the estimate of a `spectral_norm` needs that many iterations a step.
"""

import re
from collections.abc import Callable, Iterator

import numpy as np
from msgspec import structs

from pinchpoint.analysis.host.ancestry import nearest, parents, within, within_rows
from pinchpoint.analysis.host.attribution import backward_nodes, forward_rows
from pinchpoint.analysis.replay import Change, DropDeviceOps, ScaleDeviceOps, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step, rows_in_steps
from pinchpoint.diagnosis.evidence.device_work import busiest_place
from pinchpoint.diagnosis.evidence.host_spans import outermost
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.regex import regex
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.durations import duration
from pinchpoint.trace.names import rows_named
from pinchpoint.trace.run_values import SameCalls

RULE = Rule(
    needs=("host_ops",),
    record=Record("values of masks: pinchpoint run looks at one step's"),
    advice=NO_HINT,
)


def check(trace: Trace) -> Iterator[Found]:
    """The calls of each class of modules that came again, outermost classes only."""
    host = trace.host_ops
    again = () if trace.run is None or trace.run.values is None else trace.run.values.again
    if host is None:
        return
    if not again:
        yield from _of_weights(trace)
        return
    named = {one.model: rows_named(trace, host, _is_call_of(one.model)) for one in again}
    everywhere = np.logical_or.reduce(list(named.values()))
    top = outermost(trace, everywhere) & rows_in_steps(trace, host)
    for one in again:
        rows = np.flatnonzero(top & named[one.model])
        if len(rows):
            yield _found(trace, one, rows)


_PARAMETRIZED = "ParametrizationList"
_ELSE_AT_EACH_CALL = regex(r"nn\.Module: (\w*Drop\w*)_\d+$")
_ITERATES = regex(r"nn\.Module: _SpectralNorm_\d+$")  # a step of an estimate at each call


def _of_weights(trace: Trace) -> Iterator[Found]:
    """Parametrizations that a forward pass computes several times."""
    host = trace.host_ops
    assert host is not None
    mine = rows_named(trace, host, _is_call_of(_PARAMETRIZED))
    if not mine.any():
        return
    up, none = parents(host), len(host)
    odd = rows_named(trace, host, lambda name: _ELSE_AT_EACH_CALL.search(name) is not None)
    changing = np.unique(nearest(up, mine)[odd])
    mine[changing[changing < none]] = False
    # What a backward pass computes again, it has not kept.
    rows = np.flatnonzero(
        mine & ~within(up, backward_nodes(trace))[:-1] & rows_in_steps(trace, host)
    )
    optimizes = rows_named(trace, host, lambda name: name.startswith("Optimizer.step"))
    passed = np.sort(host["start_ns"][backward_nodes(trace) | optimizes])
    turn = np.searchsorted(passed, host["start_ns"][rows])
    _, of_turn, many = np.unique(
        np.stack([host["name"][rows].astype(np.int64), turn]),
        axis=1,
        return_inverse=True,
        return_counts=True,
    )
    rows = rows[many[of_turn.reshape(-1)] > 1]
    if len(rows):
        place = busiest_place(trace, rows, host["duration_ns"][rows].astype(np.int64))[0]
        same = SameCalls(_PARAMETRIZED, None, len(rows), int((many > 1).sum()))
        found = structs.replace(_found(trace, same, rows), location=place, at_best=())
        called = within_rows(up, rows)[:-1]
        iterates = rows_named(trace, host, lambda name: _ITERATES.match(name) is not None)
        yield structs.replace(found, **_ITERATED) if (called & iterates).any() else found


_ONCE = "answer = model(x)  # before the loop; in it: use answer"
_ITERATED = {
    "fix": (
        "Compute it once a pass, if one power iteration a pass is enough for its norm, and keep the"
        " weight while it stays"
    ),
    "confidence": "medium",
}
_CACHED = "with torch.nn.utils.parametrize.cached():  # around the forward pass of a step"
_OF_WEIGHTS = (_PARAMETRIZED, "_Orthogonal", "_SpectralNorm", "_WeightNorm")


def _is_call_of(model: str) -> Callable[[str], bool]:
    pattern = regex(rf"nn\.Module: {re.escape(model)}_\d+$")
    return lambda name: pattern.match(name) is not None


def _found(trace: Trace, same: SameCalls, rows: Rows) -> Found:
    host, ops, calls = trace.host_ops, trace.device_ops, len(rows)
    assert host is not None
    # With the backward pass through these calls, where there is one.
    inside = np.append(within_rows(parents(host), rows), False)[np.append(forward_rows(trace), -1)]
    back = np.flatnonzero(outermost(trace, backward_nodes(trace) & inside[:-1]))
    rows = np.union1d(rows, back[rows_in_steps(trace, host)[back]])
    spent_ns = round(per_step(trace, int(host["duration_ns"][rows].sum())))
    work: Rows = np.zeros(0, np.intp)
    busy_ns = 0
    if ops is not None:
        launched = inside[ops.filled("host_op", len(host))]
        work = np.flatnonzero(launched & device_ops_in_steps(trace))
        busy_ns = round(per_step(trace, int(ops["duration_ns"][work].sum())))
    kept = same.distinct / same.calls
    device: tuple[Change, ...] = (ScaleDeviceOps(work, kept, kept, kept),) if len(work) else ()
    dropped: tuple[Change, ...] = (DropDeviceOps(work),) if len(work) else ()
    takes = f"{duration(busy_ns)} of the device's time, " if len(work) else ""
    return Found(
        summary=(
            f"{same.model} is called {per_step(trace, calls):.3g} × a step, and"
            f" {same.calls - same.distinct} of {same.calls} calls that were watched repeat"
            f" {'an input' if same.place else 'the weights'}: {takes}{duration(spent_ns)} of the"
            " host's as recorded, for answers that are known"
        ),
        evidence=(
            Evidence("calls watched", same.calls, "count"),
            Evidence("of these with an input of their own", same.distinct, "count"),
            Evidence("host time", spent_ns, "ns per step", int(host["start_ns"][rows[0]])),
            Evidence("device time", busy_ns, "ns per step"),
        ),
        cost_ns_per_step=max(busy_ns, spent_ns),
        changes=(*device, ScaleHostSpans(rows, kept)),
        at_best=(*dropped, ScaleHostSpans(rows, 0.0)),
        location=None if same.place is None else Location(*same.place),
        fix="Compute it once, when its input is made, and keep the answer while that stays",
        hint=_CACHED if same.model in _OF_WEIGHTS else _ONCE,
        confidence="high",
    )
