"""The same weights are cast to the type of the products again and again within one pass.

## What it looks for
A module that casts a weight of its own (in a linear layer, a convolution or a recurrent one) which
the same module has already cast in this step, with no part of a backward pass in between. Told by
the module, the size of the weight, and its place among the casts of one call.

## Why it matters
Autocast keeps the weights that it has cast until its context ends. Entered inside a loop it starts
each round with an empty cache: every weight is read and written again in each round, each round's
gradient is cast back and added in float32, and the copies of all rounds stay in memory.

## How to fix it
Put one `torch.autocast` around the whole loop; leave `cache_enabled` on. Weights that do not need
gradients are not kept by autocast: convert them once (`module.to(torch.bfloat16)`).

## When to ignore it
Where the weights change between the rounds.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import parents, within
from pinchpoint.analysis.replay import Change, DropDeviceOps, ScaleDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.analysis.work.weight_copies import cast_again, weight_copies
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES_AND_STACKS
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Rows
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
    """Casts of weights beyond the first of each."""
    ops, host = trace.device_ops, trace.host_ops
    if ops is None or host is None or not host.known("shapes").any():
        raise NotChecked("the recording has no shapes and types of inputs")
    if not (host["kind"] == HostKind.MODULE).any():
        raise NotChecked("the recording has no modules, by which weights are told apart")
    found, again = weight_copies(trace), cast_again(trace)
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
        changes=_without(rows, back, added),
        location=work.place,
        fix="Put one autocast around the whole loop, or convert weights that need no gradient once",
        hint="with torch.autocast('cuda', torch.bfloat16):\n    for _ in range(rounds): ...",
    )


def _without(casts: Rows, back: Rows, added: Rows) -> tuple[Change, ...]:
    changes: tuple[Change, ...] = (DropDeviceOps(np.concatenate((casts, back))),)
    if len(added):
        changes += (ScaleDeviceOps(added, HALF_THE_BYTES, bytes_left=HALF_THE_BYTES),)
    return changes


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
