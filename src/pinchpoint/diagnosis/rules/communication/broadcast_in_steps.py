"""The same tensors are sent to all ranks in each step.

## What it looks for
Broadcasts inside the steps beside which this rank computes nothing, above all those of
`DistributedDataParallel`, which by default sends every buffer of the module from rank 0 before each
forward pass (`broadcast_buffers=True`): statistics of normalisation, but also tables, memory banks,
masks and moving averages that were registered as buffers. A rank that comes early waits inside, so
of each call only as much counts as the shortest with a message of its size took. Where sizes were
not recorded, waiting and transfer cannot be told apart, and it is not checked. Of a program on CPUs
the broadcasts of the backend (gloo, MPI) for which the thread of the steps waits: where each step
has as many, those at one place in the step are alike; what the wrapper does to put buffers into one
tensor, and to write what came into each, goes with them.

## Why it matters
The forward pass waits for the whole transfer. It is needed only where ranks would otherwise compute
with different values.

## How to fix it
`DistributedDataParallel(model, broadcast_buffers=False)`, from torch 2.13 on
`forward_sync_buffers=False`, where all ranks compute the same buffers,
or where each may keep its own (statistics of its own batches); else keep large tensors that ranks
update alike out of the module's buffers, or send what changed. Weights and settings that do not
change are sent once, before the loop.

## When to ignore it
Where the values are new in each step and only one rank has them.
"""

from collections.abc import Iterator
from math import ceil

import numpy as np

from pinchpoint.analysis.device.collectives import Collectives, collectives
from pinchpoint.analysis.host.ancestry import above, parents, within
from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.replay import DropDeviceOps, RemoveHostTime
from pinchpoint.analysis.replay.least_step import device_ns
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step, rows_in_steps
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.host_collectives import HostCalls, host_calls
from pinchpoint.diagnosis.evidence.host_spans import host_spans, named
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, About, NotChecked, Rule
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Floats, Ints, Mask, Rows, distinct
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=CPU_AND_DEVICE,
    about=About.COMMUNICATION,
    parent="host-waits",
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "torchrun train.py" "torchrun train_fixed.py"',
)

# The shortest of a few calls may have waited a little, too: two H200 won 14.3 ms of the 16.5 that
# the shortest broadcasts of a recording took.
LEAST_WON_RATIO = 0.75
_OF_BUFFERS = ("_sync_buffers", "_sync_module_buffers")


def check(trace: Trace) -> Iterator[Found]:
    """Broadcasts of the steps that nothing hides."""
    if computes_on_cpu(trace):
        yield from _of_the_host(trace)
        return
    found, ops = collectives(trace), trace.device_ops
    if ops is None or trace.api_calls is None:
        raise NotChecked("no device activity was recorded")
    if found is None or not (sent := found.kind == "broadcast").any():
        return
    if not (found.bytes[sent] > 0).all():
        raise NotChecked("message sizes are not recorded: waiting looks like transfer")
    wanted = np.zeros(len(ops), np.bool_)
    wanted[found.rows[sent]] = True
    work = device_work(trace, wanted, "broadcasts, waiting included")
    if work is None:
        return
    moving_ns = np.minimum(found.exposed_ns, _shortest_ns(found, sent))[sent]
    exposed_ns = round(per_step(trace, float(moving_ns.sum())))
    largest = int(found.bytes[sent].max())
    of_buffers = _of_buffers(trace, found.rows[sent][found.bytes[sent] == largest])
    a_step = round(per_step(trace, int(found.bytes[sent].sum())))
    yield Found(
        summary=(
            f"{_who(of_buffers)} {a_step / 1e9:.3g} GB to all ranks in each step,"
            f" {duration(exposed_ns)} in which nothing is computed"
        ),
        evidence=(
            Evidence("exposed transfer", exposed_ns, "ns per step"),
            Evidence("sent", a_step, "bytes per step"),
            Evidence("largest message", largest, "bytes"),
            *work.evidence,
        ),
        cost_ns_per_step=exposed_ns,
        saving_ns_per_step=(round(LEAST_WON_RATIO * exposed_ns), exposed_ns),
        leaves_ns_per_step=ceil(device_ns(trace, (DropDeviceOps(found.rows),))),
        location=work.place,
        fix=_FIX_OF_BUFFERS if of_buffers else _FIX,
        hint=_HINT_OF_BUFFERS if of_buffers else "",
    )


_FIX_OF_BUFFERS = (
    "Pass broadcast_buffers=False (from torch 2.13 on forward_sync_buffers=False) where all ranks"
    " compute the same buffers or may keep their own;"
    " else keep large tensors out of the module's buffers, or send what changed"
)
_HINT_OF_BUFFERS = "model = DistributedDataParallel(model, broadcast_buffers=False)"
_FIX = "Send it once, before the loop, or only what changed"


def _who(of_buffers: bool) -> str:
    return "DistributedDataParallel sends buffers of" if of_buffers else "Broadcasts send"


def _of_buffers(trace: Trace, rows: Rows) -> bool:
    """Whether the wrapper launched them for the module's buffers: its own functions are around
    them, or where no functions are recorded, its forward pass."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None:
        return False
    words = (*_OF_BUFFERS, "DistributedDataParallel.forward")
    named = np.array([any(word in name for word in words) for name in trace.names], np.bool_)
    inside = within(parents(host), named[host["name"]])
    result: Mask = inside[ops.filled("host_op", len(host))[rows]]
    return bool(result.all())


def _shortest_ns(found: Collectives, sent: Mask) -> Floats:
    """What the shortest broadcast with a message of its size took; of others, what they took."""
    least = found.duration_ns.astype(np.float64)
    for each in np.unique(found.bytes[sent]).tolist():
        alike = sent & (found.bytes == each)
        least[alike] = least[alike].min()
    return least


_WRAPPER = "DistributedDataParallel.forward"


def _of_the_host(trace: Trace) -> Iterator[Found]:
    """The same of a program on CPUs, whose backend sends in a thread of its own."""
    host, sent = trace.host_ops, host_calls(trace, ("broadcast",))
    if host is None or sent is None:
        return
    in_each = np.bincount(sent.step, minlength=len(judged_steps(trace)))
    if (in_each != in_each[0]).any():
        raise NotChecked("steps broadcast more and less often: waiting looks like transfer")
    moving = np.minimum(sent.alone_ns, _shortest_at_place(sent, int(in_each[0]), trace))
    exposed_ns = round(per_step(trace, int(moving.sum())))
    wrapper = named(trace, lambda name: name == _WRAPPER)
    of_buffers = bool(_inside(trace, sent.rows[moving == moving.max()], wrapper).all())
    issues = named(trace, lambda name: name.startswith("c10d::broadcast"))
    around = issues if not of_buffers else wrapper
    place = host_spans(trace, around, "what issues broadcasts")
    known = bool((sent.bytes >= 0).all())
    a_step = round(per_step(trace, int(sent.bytes.sum())))
    packing = _packing(trace, wrapper) if of_buffers else np.zeros(0, np.intp)
    packing_ns = round(per_step(trace, int(host["duration_ns"][packing].sum())))
    gone = RemoveHostTime(host["start_ns"][packing], host.end_ns[packing])
    packs = f", and {duration(packing_ns)} to pack and unpack them" if packing_ns else ""
    what = f" {a_step / 1e6:.3g} MB" if known else ""
    at = int(sent.rows[np.argmax(moving)])
    yield Found(
        summary=(
            f"{_who(of_buffers) if known else _who(of_buffers).removesuffix(' of')}{what} to all"
            f" ranks in each step, {duration(exposed_ns)} in which nothing is computed{packs}"
        ),
        evidence=(
            Evidence(
                "exposed transfer",
                exposed_ns,
                "ns per step",
                int(host["start_ns"][at]),
                trace.text(host, "name", at),
            ),
            Evidence("broadcasts", int(in_each[0]), "per step"),
            *((Evidence("sent", a_step, "bytes per step"),) if known else ()),
            *((Evidence("packing", packing_ns, "ns per step"),) if packing_ns else ()),
        ),
        cost_ns_per_step=exposed_ns + packing_ns,
        changes=(_less(trace, sent, (moving * LEAST_WON_RATIO).astype(np.int64)), gone),
        at_best=(_less(trace, sent, sent.alone_ns), gone),
        beside_collectives_ns=packing_ns,
        location=None if place is None else place.place,
        fix=_FIX_OF_BUFFERS if of_buffers else _FIX,
        hint=_HINT_OF_BUFFERS if of_buffers else "",
    )


def _packing(trace: Trace, wrapper: Mask) -> Rows:
    """What the wrapper computes to send buffers: before its last broadcast, where it makes one
    tensor of them, and right after it, where it writes what came into each."""
    host = trace.host_ops
    assert host is not None
    up, operators = parents(host), host["kind"] == HostKind.OPERATOR
    top = operators & (above(up, operators) == len(host)) & within(up, wrapper)[: len(host)]
    rows = np.flatnonzero(top & rows_in_steps(trace, host))
    rows = rows[np.argsort(host["start_ns"][rows], kind="stable")]
    names = [trace.names[name] for name in host["name"][rows].tolist()]
    of = np.searchsorted(host["start_ns"][wrapper], host["start_ns"][rows], "right")
    found: list[int] = []
    for each in distinct(of).tolist():
        mine = np.flatnonzero(of == each).tolist()
        sends = [at for at, n in enumerate(mine) if names[n].startswith("c10d::broadcast")]
        if sends:
            end = sends[-1] + 1
            while end < len(mine) and names[mine[end]] in _UNPACKS:
                end += 1
            found += [rows[n] for at, n in enumerate(mine[:end]) if at not in sends]
    return np.array(found, np.intp)


_UNPACKS = ("aten::unflatten_dense_tensors", "aten::copy_")


def _less(trace: Trace, sent: HostCalls, ns: Ints) -> RemoveHostTime:
    host = trace.host_ops
    assert host is not None
    end = host.end_ns[sent.rows]
    return RemoveHostTime(end - ns, end)


def _shortest_at_place(sent: HostCalls, in_each: int, trace: Trace) -> Ints:
    """What the shortest broadcast at the same place in any step took."""
    host = trace.host_ops
    assert host is not None
    took = host["duration_ns"][sent.rows].reshape(-1, in_each)
    least: Ints = np.tile(took.min(axis=0), len(took))
    return least


def _inside(trace: Trace, rows: Rows, around: Mask) -> Mask:
    """Whether each row begins while one of the others lasts, whatever its thread."""
    host = trace.host_ops
    assert host is not None
    begins, ends = host["start_ns"][around], host.end_ns[around]
    last = np.searchsorted(begins, host["start_ns"][rows], "right") - 1
    if not len(begins):
        return np.zeros(len(rows), np.bool_)
    found: Mask = (last >= 0) & (host["start_ns"][rows] < ends[np.maximum(last, 0)])
    return found
