"""An operator copies its weights in every call before it computes.

## What it looks for
Calls of a linear, convolutional or recurrent operator that copy weights of their own within the
device, in the type that they have, before they launch anything else; each call of that operator
with the same inputs does so.

## Why it matters
The weights are the same in each call, so all but the first copy of them is work for nothing. A
recurrent layer whose weights are not one piece of memory copies all of them for each call; where
a call handles one time step, that is far more than it computes. Weights in another memory layout
than the data are laid out anew by each call of a convolution.

## How to fix it
Bring the weights into the form that the operator wants once: `lstm.flatten_parameters()` after
weights were moved, replaced or shared; `model.to(memory_format=torch.channels_last)` for
convolutions; `weight.contiguous()`.

## When to ignore it
Where other code needs the weights as they are and calls are few.
"""

import itertools
from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.input_arguments import tensor_shapes
from pinchpoint.analysis.replay import Change, DropDeviceOps, RemoveHostTime, ScaleDeviceOps
from pinchpoint.analysis.steps.in_steps import per_step, rows_in_steps
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.analysis.work.weight_copies import weight_copies
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES_AND_TYPES
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import DeviceKind, Trace
from pinchpoint.trace.arrays import Ints, Mask, Rows
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops", "api_calls", "device_ops"),
    record=SHAPES_AND_TYPES,
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "python serve.py" "python serve_fixed.py"',
)


def check(trace: Trace) -> Iterator[Found]:
    """The operator whose copies of weights take most."""
    ops, host, calls = trace.device_ops, trace.host_ops, trace.api_calls
    if ops is None or host is None or calls is None or not host.known("shapes").any():
        raise NotChecked("the recording has no shapes and types of inputs")
    found = weight_copies(trace)
    plain = ~found.casts
    called, copies = np.unique(found.call[plain & found.surely], return_counts=True)
    if not len(called):
        return
    which = np.bincount(host["name"][called], copies).argmax()
    called = called[host["name"][called] == which]
    if not _in_each_call(trace, called):
        return
    first, begin, until = _preparing(trace, called, found.rows[plain])
    work = device_work(trace, first, "copies of weights, and what is filled for them")
    if work is None:
        return
    spent, times = until - begin, per_step(trace, len(called))
    name, one = trace.names[which], int(called[len(called) // 2])
    weights = tensor_shapes(trace.text(host, "shapes", one) or "")[1:]
    yield Found(
        summary=(
            f"Each of {times:.3g} calls of {name} a step copies weights before it computes"
            f"{f' in {work.place}' if work.place else ''}: {duration(work.ns_per_step)} of the"
            f" device's time, {duration(round(per_step(trace, spent.sum())))} of the host's"
        ),
        evidence=(
            *work.evidence,
            Evidence("calls", round(times, 2), "per step"),
            Evidence("inputs beside the data", len(weights), "count"),
            Evidence(
                "host until the last copy", round(per_step(trace, spent.sum())), "ns per step"
            ),
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=(
            *_gone(trace, work.rows, begin),
            RemoveHostTime(begin, until),
        ),
        location=work.place,
        fix=_fix(name),
        hint="model.lstm.flatten_parameters()  # once, after its weights were set"
        if "conv" not in name and "linear" not in name
        else None,
    )


def _gone(trace: Trace, rows: Rows, begin: Ints) -> tuple[Change, ...]:
    """Without the launches of each call, but for what the program does before the first of them."""
    ops, calls = trace.device_ops, trace.api_calls
    assert ops is not None
    assert calls is not None
    first = np.isin(calls["start_ns"][ops["api_call"][rows]], begin)
    nothing = ScaleDeviceOps(rows[first], 0.0, flops_left=0.0, bytes_left=0.0)
    return (nothing, DropDeviceOps(rows[~first]))


def _fix(name: str) -> str:
    if "conv" in name:
        return "Keep the weights in the memory layout of the data: model.to(memory_format=...) once"
    if "linear" in name:
        return "Keep the weight contiguous: copy it once, before the loop"
    return "Call flatten_parameters() once after the weights were set, moved or shared"


def _preparing(trace: Trace, called: Rows, copies: Rows) -> tuple[Mask, Ints, Ints]:
    """What each call launches until its last copy of a weight, and when that begins and ends.

    A kernel that computes among them ends it: the copies behind it are left alone.
    """
    host, ops, calls = trace.host_ops, trace.device_ops, trace.api_calls
    assert host is not None
    assert ops is not None
    assert calls is not None
    copying, mine = np.zeros((2, max(len(ops), len(host) + 1)), np.bool_)
    copying[copies], mine[called] = True, True
    launcher, call = ops.filled("host_op", len(host)), ops.filled("api_call", -1)
    around = np.append(nearest(parents(host), mine[: len(host)]), len(host))[launcher]
    rows = np.flatnonzero((around < len(host)) & (call >= 0))
    rows = rows[np.lexsort((calls["start_ns"][call[rows]], around[rows]))]
    edges = np.searchsorted(around[rows], np.append(called, len(host)))
    helping = copying[rows] | _fills(trace)[rows]
    gone = np.zeros(len(ops), np.bool_)
    begin, until = (host["start_ns"][called].astype(np.int64) for _ in range(2))
    for at, (low, high) in enumerate(itertools.pairwise(edges.tolist())):
        before = rows[low:high][np.cumsum(~helping[low:high]) == 0]
        last = np.flatnonzero(copying[before])
        if len(last):
            gone[before[: last[-1] + 1]] = True
            begin[at] = calls["start_ns"][call[before[0]]]
            until[at] = calls.end_ns[call[before[last[-1]]]]
    return gone, begin, until


def _fills(trace: Trace) -> Mask:
    ops = trace.device_ops
    assert ops is not None
    filling = launched_calls(trace).where(lambda of: of.call.name in ("aten::fill_", "aten::zero_"))
    result: Mask = filling | (ops["kind"] == DeviceKind.MEMSET)
    return result


def _in_each_call(trace: Trace, called: Rows) -> bool:
    """Whether these are all calls of the operator with their inputs in the judged steps."""
    host = trace.host_ops
    assert host is not None
    shapes = host.filled("shapes", -1)
    alike = (host["name"] == host["name"][called[0]]) & np.isin(shapes, shapes[called])
    return bool(len(called) == (alike & rows_in_steps(trace, host)).sum())
