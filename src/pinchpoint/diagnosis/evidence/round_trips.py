"""What goes to the host and comes back in the same step."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.ancestry import above, parents, subtree_sums, within
from pinchpoint.analysis.host.attribution import backward_nodes, launched_count
from pinchpoint.analysis.host.frames import Owner, owners
from pinchpoint.analysis.host.input_arguments import parsed
from pinchpoint.analysis.replay import Change, DropDeviceOps, DropSyncs, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step, rows_in_steps
from pinchpoint.diagnosis.evidence.device_work import device_work
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
    from pinchpoint.analysis.tables.transfers import blocked_ns

    waited = round(per_step(trace, int(blocked_ns(trace)[copies.rows].sum())))
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
