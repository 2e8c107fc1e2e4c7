"""The same weights are cast to the type of the products again and again within one pass.

## What it looks for
A module that casts a weight of its own (in a linear layer, a convolution or a recurrent one) which
the same module has already cast in this step, with no part of a backward pass in between. Told by
the module, the size of the weight, and its place among the casts of one call.
And casts of weights that each step makes anew though the weights stay: `pinchpoint run` sees that
their values are the same; without it, where no backward pass of the recording casts a gradient of
that size back, so that the weights are frozen, and two steps at least cast them.

## Why it matters
Autocast keeps the weights that it has cast until its context ends. Entered inside a loop it starts
each round with an empty cache: every weight is read and written again in each round, each round's
gradient is cast back and added in float32, and the copies of all rounds stay in memory.
Weights that need no gradient it never keeps: each call reads them in the wide type and writes a
copy.

## How to fix it
Put one `torch.autocast` around the whole loop; leave `cache_enabled` on. Weights that do not need
gradients are not kept by autocast: convert them once (`module.to(torch.bfloat16)`), which takes
half of their memory.

## When to ignore it
Where the weights change between the rounds.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import above, parents, within, within_rows
from pinchpoint.analysis.replay import Change, DropDeviceOps, ScaleDeviceOps, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.analysis.work.weight_copies import (
    cast_again,
    cast_of_frozen_weights,
    weight_copies,
)
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.vain_work import rows_of_note
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES_AND_STACKS
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Mask, Rows
from pinchpoint.trace.durations import duration
from pinchpoint.trace.names import rows_named

RULE = Rule(
    needs=("device_ops", "host_ops"),
    record=SHAPES_AND_STACKS,
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "python train.py" "python train_one_autocast.py"',
)

HALF_THE_BYTES = 0.5  # gradients of 16 bits in place of 32


def check(trace: Trace) -> Iterator[Found]:
    """Casts of weights that stay from step to step, and those beyond the first of each in one."""
    ops, host = trace.device_ops, trace.host_ops
    if ops is None or host is None or not host.known("shapes").any():
        raise NotChecked("the recording has no shapes and types of inputs")
    found, stay = weight_copies(trace), _stay(trace)
    yield from _each_step(trace, found.rows[stay])
    if not (host["kind"] == HostKind.MODULE).any():
        if stay.any():
            return
        raise NotChecked("the recording has no modules, by which weights are told apart")
    again = cast_again(trace) & ~stay
    rows = found.rows[again]
    wanted = np.zeros(len(ops), np.bool_)
    wanted[rows] = True
    work = device_work(trace, wanted, "casts of weights that were cast before")
    if work is None:
        return
    times = len(rows) / max(int((found.casts & ~again).sum()), 1) + 1
    back, added = _gradients(trace, rows)
    backward = ops["duration_ns"][back].sum() / max(ops["duration_ns"][rows].sum(), 1)
    yield Found(
        summary=(
            f"The same weights are cast {times:.3g} times a pass"
            f"{f' in {work.place}' if work.place else ''}: {work.count:.0f} casts a step repeat"
            f" others, {duration(work.ns_per_step)} of the device's time"
        ),
        evidence=(
            *work.evidence,
            Evidence(
                "their gradients' casts", round(work.ns_per_step * float(backward)), "ns per step"
            ),
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=_without(trace, rows, back, added),
        location=work.place,
        fix="Put one autocast around the whole loop, or convert weights that need no gradient once",
        hint="with torch.autocast('cuda', torch.bfloat16):\n    for _ in range(rounds): ...",
    )


def _stay(trace: Trace) -> Mask:
    """Of each of the ``weight_copies`` whether it casts what each step before it cast, too."""
    host, found = trace.host_ops, weight_copies(trace)
    assert host is not None
    assert trace.device_ops is not None
    values = trace.run.values if trace.run else None
    if values is None or values.work is None:
        return cast_of_frozen_weights(trace)
    seen = np.zeros(len(host) + 1, np.bool_)
    for work in values.work:
        if work.kind == "step" and work.steps_ratio == 1:
            seen[rows_of_note(trace, work)] = True
    copies = trace.device_ops.filled("host_op", len(host))[found.rows].astype(np.intp)
    by: Mask = np.append(within_rows(parents(host), np.flatnonzero(seen)), False)[copies]
    return found.casts & by


def _each_step(trace: Trace, rows: Rows) -> Iterator[Found]:
    ops, host = trace.device_ops, trace.host_ops
    assert ops is not None
    assert host is not None
    wanted = np.zeros(len(ops), np.bool_)
    wanted[rows] = True
    work = device_work(trace, wanted, "casts of weights that stay")
    if work is None:
        return
    watched = trace.run is not None and trace.run.values is not None and trace.run.values.work
    yield Found(
        summary=(
            "Each step casts the same weights to the type of the products anew:"
            f" {work.count:.0f} casts, {duration(work.ns_per_step)} of the device's time"
        ),
        evidence=work.evidence,
        cost_ns_per_step=work.ns_per_step,
        changes=(DropDeviceOps(rows), ScaleHostSpans(_calls_around(trace, rows), 0.0)),
        location=work.place,
        fix="Convert these weights once, where they are loaded: autocast keeps no copies of"
        " weights that need no gradient, and none beyond its context",
        hint=f"model.to({_narrow_type(trace, rows)})  # once, before the loop",
        confidence="high" if watched else "medium",
    )


def _narrow_type(trace: Trace, casts: Rows) -> str:
    half = launched_calls(trace).where(lambda of: of.call.dtype(0) == "c10::Half")[casts]
    return "torch.float16" if half.all() else "torch.bfloat16"


def _without(trace: Trace, casts: Rows, back: Rows, added: Rows) -> tuple[Change, ...]:
    """Without the casts and those of their gradients, and the calls of the host that make them."""
    gone = np.concatenate((casts, back))
    changes: tuple[Change, ...] = (
        DropDeviceOps(gone),
        ScaleHostSpans(_calls_around(trace, gone), 0.0),
    )
    if len(added):
        changes += (ScaleDeviceOps(added, HALF_THE_BYTES, bytes_left=HALF_THE_BYTES),)
    return changes


def _calls_around(trace: Trace, casts: Rows) -> Rows:
    """Of each cast the outermost call that does nothing else: the backward pass's node of a cast
    back, else ``aten::to``, else what it calls."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    at = ops.filled("host_op", len(host))[casts].astype(np.intp)
    for named in _AROUND:
        found = above(parents(host), rows_named(trace, host, named.__contains__))
        around = np.append(found, len(host))[at]
        at = np.where(around < len(host), around, at)
    return np.unique(at[at < len(host)])


# From the inside to the outside.
_AROUND = (frozenset({"aten::_to_copy"}), frozenset({"aten::to"}), frozenset({"ToCopyBackward0"}))


def _gradients(trace: Trace, casts: Rows) -> tuple[Rows, Rows]:
    """What the backward pass does for these casts: casts back, and additions in the wide type.

    Of each size as many casts back as casts are gone.
    """
    host, calls = trace.host_ops, launched_calls(trace)
    assert host is not None
    node = rows_named(trace, host, lambda name: name.endswith("ToCopyBackward0"))
    inside = within(parents(host), node)[calls.operator]
    inside &= device_ops_in_steps(trace)
    size = np.nan_to_num(calls.numbers(lambda of: of.call.size(0)))
    copies = inside & calls.where(lambda of: of.call.name == "aten::copy_")
    adds = inside & calls.where(lambda of: of.call.name in ("aten::add_", "aten::add"))
    back = [np.flatnonzero(copies & (size == one))[: int((size[casts] == one).sum())]
            for one in np.unique(size[casts])]  # fmt: skip
    return np.concatenate(back), np.flatnonzero(adds & np.isin(size, size[casts]))
