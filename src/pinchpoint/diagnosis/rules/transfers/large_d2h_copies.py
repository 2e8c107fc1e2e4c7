"""The host waits while large tensors are copied to it in each step.

## What it looks for
Copies from the device to the host of a megabyte and more inside the steps, that the host waits for:
to ordinary memory, or with a synchronisation behind them. Saving a checkpoint and writing logs copy
for reasons of their own; where the host computes with what was copied, `metric-on-cpu` or
`sampling-on-cpu` say so.

## Why it matters
The copy waits for all queued work, runs at the pace of the link (slower still into ordinary
memory), and nothing is launched until it is done.

## How to fix it
Keep the tensor on the device, or copy less of it. Else copy it into page-locked memory with
`non_blocking=True`, record an event, and look at it a step later.

## When to ignore it
Where the result is what the program is run for, and the next step needs it on the host.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.replay import DropDeviceOps, DropSyncs, ScaleDeviceOps
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.analysis.time.host_waits import WaitReason, host_waits
from pinchpoint.diagnosis.evidence.device_work import device_work, waiting
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_TORCH_CUDA, Rule
from pinchpoint.trace import MemoryKind, Table, Trace
from pinchpoint.trace.arrays import Rows

RULE = Rule(
    needs=("api_calls", "device_ops"),
    record=CPU_AND_DEVICE,
    periodic=True,
    advice=NO_TORCH_CUDA,
    confirm='pinchpoint bench ab -- "python train.py" "python train_fixed.py"',
)

LARGE_COPY_BYTES = 1 << 20  # below this the fixed cost of a call outweighs the rate
PINNED_BYTES_PER_S = 50e9  # PCIe 5 x16, as in pageable-h2d
_OTHER_CAUSES = (GapKind.CHECKPOINT, GapKind.LOGGING)


def check(trace: Trace) -> Iterator[Found]:
    """Large copies to the host that it waits for."""
    ops, waits = trace.device_ops, host_waits(trace)
    copies = waiting(trace, "copies to the host that it waits for", WaitReason.COPY_TO_HOST)
    if ops is None or copies is None:
        return
    rows = waits.rows(WaitReason.COPY_TO_HOST)
    kind = activity(trace)
    inside = waits.host_op[rows]
    known = inside[inside < (0 if trace.host_ops is None else len(trace.host_ops))]
    large = waits.bytes[rows] >= LARGE_COPY_BYTES
    if not large.any() or np.isin(kind[known], _OTHER_CAUSES).any():
        return
    down = np.isin(ops.filled("to_memory", 0), (MemoryKind.PAGEABLE, MemoryKind.PINNED))
    down &= (ops.filled("from_memory", 0) == MemoryKind.DEVICE) & (
        ops.filled("bytes", 0) >= LARGE_COPY_BYTES
    )
    work = device_work(trace, down, "device time of these copies")
    # A copy and the synchronisation behind it are two calls of one operator, and one copy.
    _, acts = np.unique(inside[large], return_index=True)
    sizes = waits.bytes[rows][large][acts] if work is None else ops["bytes"][work.rows]
    moved = per_step(trace, int(sizes.sum()))
    rate = None if work is None else _rate_of_ordinary(ops, work.rows)
    many = f"{moved / 1e9:.3g} GB" if moved >= 1e9 else f"{moved / 1e6:.3g} MB"
    said = f"{many} a step are copied to the host, which waits for them{copies.where}"
    if rate is not None:
        said += f": ordinary memory takes {rate / 1e9:.1f} GB/s, pinned memory up to 50"
    yield Found(
        summary=said,
        evidence=(
            Evidence("copied to the host", round(moved), "bytes per step"),
            *(() if rate is None else (Evidence("rate", round(rate), "bytes/s"),)),
            *copies.evidence,
            *(() if work is None else work.evidence[:1]),
        ),
        cost_ns_per_step=copies.waited_ns,
        changes=(
            DropSyncs(copies.api_calls),
            *(() if work is None else (_at_the_rate_of_pinned(trace, work.rows),)),
        ),
        at_best=(() if work is None else (DropSyncs(copies.api_calls), DropDeviceOps(work.rows))),
        location=copies.place,
        fix=_FIX if rate is None else _FIX_ORDINARY,
        hint="host.copy_(x, non_blocking=True)  # host = torch.empty(..., pin_memory=True)",
    )


_FIX = "Keep it on the device, or copy it into pinned memory and look at it a step later"
_FIX_ORDINARY = (
    "Make pinned buffers once, copy into them with non_blocking=True, and read them when an event"
    " behind the copies is done"
)
# Of what pinned memory takes: new pages that the kernel clears and the driver's staging together
# leave a tenth of it, pages that were there before up to a half.
SLOW_RATIO = 0.5


def _rate_of_ordinary(ops: Table, rows: Rows) -> float | None:
    """Bytes a second of the copies to ordinary memory; None where there are none, or they are as
    fast as others."""
    mine = rows[ops.filled("to_memory", 0)[rows] == MemoryKind.PAGEABLE]
    took_ns = int(ops["duration_ns"][mine].sum())
    rate = int(ops["bytes"][mine].sum()) / max(took_ns, 1) * 1e9
    return rate if len(mine) and rate < SLOW_RATIO * PINNED_BYTES_PER_S else None


def _at_the_rate_of_pinned(trace: Trace, rows: np.ndarray) -> ScaleDeviceOps:
    """The copies at the rate of the link, if they were slower."""
    ops = trace.device_ops
    assert ops is not None
    rate = int(ops["bytes"][rows].sum()) / max(int(ops["duration_ns"][rows].sum()), 1) * 1e9
    return ScaleDeviceOps(rows, min(rate / PINNED_BYTES_PER_S, 1.0))
