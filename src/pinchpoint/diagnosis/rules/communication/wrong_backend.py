"""Device tensors go through a collective backend of the host.

## What it looks for
Collectives of gloo or MPI on a process that computes on a device: copies to the host before them
and back after them, and no collective kernels. All three are needed: control messages over gloo
beside NCCL are usual, and so are gloo collectives of a program without a device.

## Why it matters
The data crosses to host memory, is reduced by the CPU over sockets, and crosses back; the device
waits for all of it.

## How to fix it
`init_process_group("nccl")` (or rccl, xccl), or `"cpu:gloo,cuda:nccl"` where both are needed.

## When to ignore it
Small control messages.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.device.collectives import collectives
from pinchpoint.analysis.replay import RemoveHostTime, ScaleDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.diagnosis.evidence.host_spans import host_spans, named
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, About, Rule
from pinchpoint.trace import MemoryKind, Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops", "device_ops", "api_calls"),
    record=CPU_AND_DEVICE,
    about=About.COMMUNICATION,
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "torchrun train.py" "torchrun train_nccl.py"',
)

_HOST_BACKENDS = ("gloo:", "mpi:", "ucc:")
LEFT_RATIO = 0.1  # a device link against host memory and sockets: 10 to 100 times the rate


def check(trace: Trace) -> Iterator[Found]:
    """Collectives on the host between copies."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None or collectives(trace) is not None:
        return
    spelt = named(trace, lambda name: name.startswith(_HOST_BACKENDS))
    spans = host_spans(trace, spelt, "collectives on the host")
    if spans is None:
        return
    host_side = (MemoryKind.PAGEABLE, MemoryKind.PINNED, MemoryKind.HOST)
    down = np.isin(ops.filled("to_memory", 0), host_side)
    up = np.isin(ops.filled("from_memory", 0), host_side)
    copies = np.flatnonzero((down | up) & device_ops_in_steps(trace))
    if not len(copies):
        return
    moved = per_step(trace, int(ops.filled("bytes", 0)[copies].sum()))
    start, end = host["start_ns"][spans.rows], host.end_ns[spans.rows]
    calls = trace.api_calls
    assert calls is not None
    # A thread of the backend does them; the operator that begins one has the program's line.
    begun = host_spans(trace, named(trace, lambda name: name.startswith("c10d::")), "collectives")
    backend = (trace.text(host, "name", int(spans.rows[0])) or "").split(":")[0]
    yield Found(
        summary=(
            f"Collectives of the {backend} backend run on the host,"
            f" {duration(spans.ns_per_step)} of each recorded step"
        ),
        evidence=(
            *spans.evidence,
            Evidence("copied between device and host", round(moved), "bytes per step"),
        ),
        cost_ns_per_step=spans.ns_per_step,
        changes=(
            RemoveHostTime(*_shortened(start, end)),
            ScaleDeviceOps(copies, LEFT_RATIO, bytes_left=0.0),
        ),
        location=(begun or spans).place,
        fix="Use the device's own backend",
        hint='torch.distributed.init_process_group("nccl")',
    )


def _shortened(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return start + (LEFT_RATIO * (end - start)).astype(np.int64), end
