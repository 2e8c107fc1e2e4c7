"""The optimizer updates weights on the CPU, and gradients and weights cross the link for it.

## What it looks for
Ranges of `Optimizer.step` in which operators that launch nothing take most of the time: their
tensors lie in host memory. Copies to the host whose sizes come back are part of the cause
(gradients there, weights back, each number in two or four bytes); so is a synchronisation between
the first of these copies and the optimizer, which has to be there as long as the CPU reads what was
copied. The gain is the step without all of these, with one pass of the device's memory over
gradients, weights and moments. Where the optimizer only launches, it is none.

## Why it matters
The device waits while gradients cross the link, while a CPU with a tenth of its bandwidth passes
over weights and moments, and while the weights come back.

## How to fix it
Build the optimizer from parameters on the device, with `fused=True`. Where memory is short: moments
in 8 bits, states that are sharded over devices (FSDP, ZeRO), or a smaller model in bf16. Else
update in pieces, each while the next one's gradients are on their way.

## When to ignore it
Where weights and moments do not fit the device any other way.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.cpu_operators import computed_on_host
from pinchpoint.analysis.replay import Change, DropDeviceOps, DropSyncs, ScaleHostSpans
from pinchpoint.analysis.replay.changes import ScaleDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps, per_step
from pinchpoint.analysis.time.host_waits import WaitReason, host_waits
from pinchpoint.diagnosis.evidence.attainable import attainable
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.evidence.round_trips import copies_between
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Ints, Mask, Rows
from pinchpoint.trace.durations import duration
from pinchpoint.trace.names import rows_named

RULE = Rule(
    needs=("host_ops", "api_calls", "device_ops"),
    record=CPU_AND_DEVICE,
    parent="offloaded-to-host",
    advice=NO_HINT,
)

MOSTLY_RATIO = 0.5  # of the range: beside that it calls Python, or launches for a few tensors
# Adam reads gradient, weight and two moments and writes the last three, each of 4 bytes, for each
# number that comes back in 4 bytes or fewer.
PASSES = 7


def check(trace: Trace) -> Iterator[Found]:
    """Optimizer steps that compute on the CPU, with the copies made for them."""
    spans = host_spans(trace, _on_cpu(trace), "the optimizer on the CPU")
    if spans is None:
        return
    link = _link(trace, spans.rows)
    moved = "" if link is None else f", for which {link.bytes_per_step / 1e6:.3g} MB cross the link"
    yield Found(
        summary=(
            f"The optimizer computes on the CPU for {duration(spans.ns_per_step)} a step"
            f"{spans.where}{moved}"
        ),
        evidence=(*spans.evidence, *(() if link is None else link.evidence)),
        cost_ns_per_step=spans.ns_per_step + (0 if link is None else link.ns_per_step),
        changes=(ScaleHostSpans(spans.rows, 0.0), *(() if link is None else link.changes)),
        location=spans.place,
        fix="Keep the optimizer's weights and moments on the device, with fused=True",
        hint="opt = torch.optim.AdamW(model.parameters(), fused=True)  # after model.to(device)",
    )


def _on_cpu(trace: Trace) -> Mask:
    """Ranges of optimizers whose time is mostly that of operators on CPU tensors."""
    host = trace.host_ops
    assert host is not None
    updates = rows_named(trace, host, lambda name: name.startswith("Optimizer.step"))
    if not updates.any():
        return updates
    chain, computed = parents(host), computed_on_host(trace)
    outer = np.flatnonzero(computed & ~np.append(computed, False)[chain])
    inside = np.append(nearest(chain, updates), len(host))[chain[outer]]
    took = np.bincount(inside, host["duration_ns"][outer], len(host) + 1)[:-1]
    found: Mask = updates & (took >= MOSTLY_RATIO * host["duration_ns"])
    return found


@dataclass(frozen=True, eq=False)
class _Link:
    """Copies there and back, and the waits between them."""

    bytes_per_step: float
    ns_per_step: int
    changes: tuple[Change, ...]

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """How much, and how long."""
        return (
            Evidence("copied there and back", round(self.bytes_per_step), "bytes per step"),
            Evidence("time of these copies", self.ns_per_step, "ns per step"),
        )


def _link(trace: Trace, updates: Rows) -> _Link | None:
    """What goes to the host and what of that size comes back; None where nothing does."""
    ops, calls, windows = trace.device_ops, trace.api_calls, judged_steps(trace)
    assert ops is not None
    assert calls is not None
    there, back = _there_and_back(trace)
    if not len(there) or not len(back):
        return None
    issued = calls["start_ns"][ops["api_call"][there]]
    begin = _begin_ns(trace, updates, len(windows))
    waits = _guards(trace, issued, windows.step_of(issued), begin)
    size = int(ops["bytes"][back].sum())
    both = np.concatenate((there, back))
    changes = (DropSyncs(waits), DropDeviceOps(there), *_on_the_device(trace, back, size))
    moved, took = (int(ops[column][both].sum()) for column in ("bytes", "duration_ns"))
    return _Link(per_step(trace, moved), round(per_step(trace, took)), changes)


def _there_and_back(trace: Trace) -> tuple[Rows, Rows]:
    """Copies of the judged steps in each direction whose sizes the other has, too, in 2 or 4 bytes
    a number."""
    ops = trace.device_ops
    assert ops is not None
    mine = device_ops_in_steps(trace) & ops.known("api_call") & ops.known("bytes")
    rows = [np.flatnonzero(mine & copies_between(trace, to_host=to)) for to in (True, False)]
    sizes = [ops["bytes"][some] for some in rows]
    there, back = (
        some[np.isin(own, np.concatenate((other, 2 * other, other // 2)))]
        for some, own, other in zip(rows, sizes, sizes[::-1], strict=True)
    )
    return there, back


def _begin_ns(trace: Trace, updates: Rows, count: int) -> Ints:
    """When the first update of each step begins; -1 without one."""
    host = trace.host_ops
    assert host is not None
    begin = np.full(count, -1, np.int64)
    start_ns = host["start_ns"][updates][::-1]  # of several in a step, the first stays
    begin[judged_steps(trace).step_of(start_ns)] = start_ns
    return begin


def _guards(trace: Trace, issued: Ints, step: Ints, begin: Ints) -> Rows:
    """Calls that the program waits in between the first copy to the host and the update."""
    calls, waits = trace.api_calls, host_waits(trace)
    assert calls is not None
    first = np.full(len(begin), np.iinfo(np.int64).max)
    np.minimum.at(first, step, issued)
    rows = waits.api_calls[waits.rows(WaitReason.EXPLICIT, WaitReason.COPY_TO_HOST)]
    at = judged_steps(trace).step_of(calls["start_ns"][rows])
    start = calls["start_ns"][rows]
    found: Rows = rows[(at >= 0) & (start >= first[at]) & (start < begin[at])]
    return found


def _on_the_device(trace: Trace, back: Rows, size: int) -> tuple[Change, ...]:
    """The weights' copies as what the update takes on the device."""
    ops, well = trace.device_ops, attainable(trace)
    assert ops is not None
    needs = None if well is None else well.stream_ns(PASSES * size)
    took = float(ops["duration_ns"][back].sum())
    factor = 0.0 if needs is None else min(needs / max(took, 1.0), 1.0)
    return (ScaleDeviceOps(back, factor, bytes_left=0.0),)  # none of them over the link
