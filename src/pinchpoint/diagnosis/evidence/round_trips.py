"""What goes to the host and comes back in the same step."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.ancestry import above, nearest, parents, subtree_sums, within
from pinchpoint.analysis.host.attribution import backward_nodes, launched_count
from pinchpoint.analysis.host.cpu_operators import computed_on_host
from pinchpoint.analysis.host.frames import Owner, owners
from pinchpoint.analysis.host.input_arguments import parsed
from pinchpoint.analysis.limits.roofs import roofs
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.analysis.replay import (
    Change,
    DropDeviceOps,
    DropSyncs,
    LimitDeviceOps,
    ScaleHostSpans,
)
from pinchpoint.analysis.steps.in_steps import (
    device_ops_in_steps,
    per_step,
    rows_in_steps,
)
from pinchpoint.analysis.tables.transfers import blocked_ns
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.host_spans import HostSpans, host_spans
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.trace import ApiKind, HostKind, MemoryKind, Trace
from pinchpoint.trace.arrays import Ints, Mask, Rows
from pinchpoint.trace.durations import duration
from pinchpoint.trace.names import rows_named

FEWEST_COPIES = 12  # a step, each way: results and metrics are a handful
# Of the bytes that go to the host: results, metrics and checkpoints do not come back.
COME_BACK_RATIO = 0.9
# A step, each way: 1 ms on PCIe 5. Results that come back by chance are scalars and small tables.
LEAST_THERE_BYTES = 50_000_000
COMPUTED_RATIO = 0.05  # of the step: a norm or a scale on the host is no reason for the copies
# Read and written by Adam for each number: the same update on the device takes that.
MOVES_OF_AN_UPDATE = 7


def _there_and_back(trace: Trace) -> tuple[Rows, Rows] | None:
    """Rows of ``device_ops`` that go to the host, and as many of the same sizes that come back."""
    ops = trace.device_ops
    assert ops is not None
    size = ops.filled("bytes", 0).astype(np.int64)
    mine = device_ops_in_steps(trace) & (size > 0)
    down = np.flatnonzero(mine & copies_between(trace, to_host=True))
    up = np.flatnonzero(mine & copies_between(trace, to_host=False))
    if not len(down) or not len(up):
        return None
    number, order = _nth_of_its_size(size[down]), _nth_of_its_size(size[up])
    goes = np.isin(_pairs(size[down], number), _pairs(size[up], order))
    comes = np.isin(_pairs(size[up], order), _pairs(size[down], number))
    back = int(size[down[goes]].sum())
    enough = per_step(trace, int(goes.sum())) >= FEWEST_COPIES
    enough &= per_step(trace, back) >= LEAST_THERE_BYTES
    return (
        (down[goes], up[comes]) if enough and back >= COME_BACK_RATIO * size[down].sum() else None
    )


def _nth_of_its_size(size: Ints) -> Ints:
    """How many of the same size come before each."""
    order = np.argsort(size, kind="stable")
    first = np.searchsorted(size[order], size[order], "left")
    out = np.empty(len(size), np.int64)
    out[order] = np.arange(len(size)) - first
    return out


def _pairs(size: Ints, number: Ints) -> NDArray[np.complex128]:
    pair: NDArray[np.complex128] = size + 1j * number
    return pair


def round_trip(trace: Trace) -> Iterator[Found]:
    """The tensors of a step that go to the host and come back, as one finding."""
    ops, there_and_back = trace.device_ops, _there_and_back(trace)
    if ops is None or there_and_back is None:
        return
    down, up = there_and_back
    both = np.zeros(len(ops), np.bool_)
    both[down], both[up] = True, True
    copies = device_work(trace, both, "device time of both")
    assert copies is not None
    going = np.zeros(len(ops), np.bool_)
    going[down] = True
    out = device_work(trace, going, "to the host")
    moved = per_step(trace, int(ops["bytes"][down].astype(np.int64).sum()))
    waited = round(per_step(trace, int(blocked_ns(trace)[copies.rows].sum())))
    work = _computed_between(trace, down, up)
    if work is not None:
        yield _computed_on_host(trace, work, down, up)
        return
    what = "Saved tensors go" if _in_backward(trace, up) else "Tensors go"
    yield Found(
        summary=(
            f"{what} to the host and come back in the same step: {moved / 1e9:.3g} GB each way, in"
            f" {copies.count:.0f} copies, {duration(copies.ns_per_step)} of the device and"
            f" {duration(waited)} of the host that waits for them"
        ),
        evidence=(
            Evidence("copied to the host and back", round(moved), "bytes per step"),
            *copies.evidence,
            Evidence("host blocked in them", waited, "ns per step"),
        ),
        cost_ns_per_step=copies.ns_per_step,
        changes=_none_of_it(trace, copies.rows),
        location=out.place if out else copies.place,
        fix="Keep them on the device while memory is free; else offload fewer of them, or compute"
        " them again (activation checkpointing)",
    )


def _computed_on_host(trace: Trace, work: HostSpans, down: Rows, up: Rows) -> Found:
    """What the host computes with them is why they go there."""
    ops, host = trace.device_ops, trace.host_ops
    assert ops is not None
    assert host is not None
    rows = np.concatenate([down, up])
    moved = per_step(trace, int(ops["bytes"][down].astype(np.int64).sum()))
    copies = per_step(trace, int(ops["duration_ns"][rows].sum()))
    update = rows_named(trace, host, lambda name: name.startswith("Optimizer.step"))
    updates = bool((nearest(parents(host), update)[work.rows] < len(host)).all())
    who = "The optimizer" if updates else trace.text(host, "name", int(work.rows[0]))
    known = roofs(trace)
    left = np.zeros(len(rows))
    if known is not None and known.memory is not None:
        left = ops["bytes"][rows] * MOVES_OF_AN_UPDATE / 2 / known.memory.per_s * 1e9
    left = np.minimum(left, ops["duration_ns"][rows])
    return Found(
        summary=(
            f"{who} computes on the CPU: {moved / 1e9:.3g} GB a step go to the host and come back"
            f" ({duration(round(copies))} of copies), and the host computes for"
            f" {duration(work.ns_per_step)}{work.where}"
        ),
        evidence=(
            Evidence("copied to the host and back", round(moved), "bytes per step"),
            Evidence("device time of both", round(copies), "ns per step"),
            *work.evidence,
        ),
        cost_ns_per_step=round(copies) + work.ns_per_step,
        changes=(
            DropSyncs(_waits_between(trace, down, up)),
            LimitDeviceOps(rows, left),
            ScaleHostSpans(work.rows, 0.0),
        ),
        location=work.place,
        fix="Keep what it works on (weights, gradients, the optimizer's state) on the device while"
        " memory is free",
        hint="optimizer = torch.optim.AdamW(model.parameters())  # of weights on the device",
    )


def _computed_between(trace: Trace, down: Rows, up: Rows) -> HostSpans | None:
    """What the host computes in a step between these copies; None where it is little."""
    host, base = trace.host_ops, step_base_ns(trace)
    if host is None or base is None:
        return None
    rows = np.flatnonzero(computed_on_host(trace))
    wanted = np.zeros(len(host), np.bool_)
    wanted[rows[_after_down(trace, down, up, host.end_ns[rows])]] = True
    found = host_spans(trace, wanted, "computed by the host meanwhile")
    return found if found is not None and found.ns_per_step >= COMPUTED_RATIO * base else None


def _after_down(trace: Trace, down: Rows, up: Rows, at_ns: Ints) -> Mask:
    """Whether the last of these copies before a time goes to the host, and the next one comes."""
    ops = trace.device_ops
    assert ops is not None
    starts = np.concatenate([ops["start_ns"][down], ops["start_ns"][up]])
    order = np.argsort(starts, kind="stable")
    goes = (np.arange(len(starts)) < len(down))[order]
    after = np.searchsorted(starts[order], at_ns, "right")
    inside = (after > 0) & (after < len(starts))
    next_ = np.minimum(after, len(starts) - 1)
    found: Mask = inside & goes[np.maximum(after - 1, 0)] & ~goes[next_]
    return found


def _waits_between(trace: Trace, down: Rows, up: Rows) -> Rows:
    """Calls that wait for the device until the copies have gone."""
    calls = trace.api_calls
    if calls is None:
        return np.zeros(0, np.intp)
    rows = np.flatnonzero(np.isin(calls["kind"], _SYNCS))
    return rows[_after_down(trace, down, up, calls.end_ns[rows])]


def _in_backward(trace: Trace, rows: Rows) -> bool:
    """Whether most of these device operations come from the backward pass."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None or not len(host):
        return False
    inside = within(parents(host), backward_nodes(trace))[:-1]
    found = np.append(inside, False)[ops.filled("host_op", len(host))[rows]]
    return bool(2 * found.sum() > len(rows))


def _none_of_it(trace: Trace, copies: Rows) -> tuple[Change, ...]:
    """Without the copies, the operators that make them, waits inside these, and their memory."""
    host, calls, ops = trace.host_ops, trace.api_calls, trace.device_ops
    assert ops is not None
    if host is None or calls is None or not len(host):
        return (DropDeviceOps(copies),)
    acts = _nothing_but(trace, copies) | _page_locked(trace)
    inside = within(parents(host), acts)
    waits = np.isin(calls["kind"], _SYNCS) & inside[calls.filled("host_op", len(host))]
    outermost = acts & (above(parents(host), acts) == len(host))
    return (
        DropSyncs(np.flatnonzero(waits)),
        DropDeviceOps(copies),
        ScaleHostSpans(np.flatnonzero(outermost & rows_in_steps(trace, host)), 0.0),
    )


_SYNCS = (ApiKind.SYNC_DEVICE, ApiKind.SYNC_STREAM, ApiKind.SYNC_EVENT)


def _nothing_but(trace: Trace, copies: Rows) -> Mask:
    """Operators and functions of the framework whose device work is these copies and no other."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    chosen = np.zeros(len(ops), np.bool_)
    chosen[copies] = True
    every = subtree_sums(parents(host), launched_count(trace))
    mine = subtree_sums(parents(host), launched_count(trace, chosen))
    kinds = (HostKind.OPERATOR, HostKind.PYTHON)
    theirs = np.isin(host["kind"], kinds) & (owners(trace) != Owner.USER)
    result: Mask = theirs & (mine > 0) & (mine == every)
    return result


_PIN_AT = 4  # argument of aten::empty: size, type, layout, device, pin_memory


def _page_locked(trace: Trace) -> Mask:
    """Operators that get page-locked memory."""
    host = trace.host_ops
    assert host is not None
    found = rows_named(trace, host, lambda name: name == "aten::empty") & host.known("values")
    for row in np.flatnonzero(found).tolist():
        given = parsed(trace.text(host, "values", row) or "") or ()
        found[row] = len(given) > _PIN_AT and given[_PIN_AT] == "True"
    return found


def copies_between(trace: Trace, *, to_host: bool) -> Mask:
    """Copies between host and device in one direction."""
    ops = trace.device_ops
    assert ops is not None
    on_host, on_device = ("to_memory", "from_memory") if to_host else ("from_memory", "to_memory")
    of_host = (MemoryKind.PAGEABLE, MemoryKind.PINNED, MemoryKind.HOST)
    found: Mask = np.isin(ops.filled(on_host, 0), of_host)
    found &= ops.filled(on_device, 0) == MemoryKind.DEVICE
    return found
