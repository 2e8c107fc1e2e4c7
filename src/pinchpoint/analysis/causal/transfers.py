"""The least time of copies, fills and collectives for the bytes that they move.

Copies between host and device at the rate of the bus, others and fills at that of memory,
collectives at that of the link between devices: what nccl-tests calls bus bandwidth. Waiting for
other ranks is in none of them.
"""

import numpy as np

from pinchpoint.analysis.device.collectives import bus_factor, collective_arguments
from pinchpoint.analysis.limits.roofs import Roofs
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.trace import DeviceKind, MemoryKind, Trace
from pinchpoint.trace.arrays import Floats

# Pinned copies reach 0.87 of the bus (PCIe 5 x16: 55 of 63 GB/s), ring all-reduces 0.78 to
# 0.82 of one direction of NVLink (A100 235 of 300, H200 368 of 450 GB/s): nvbandwidth, nccl-tests.
BUS_REACHED, LINK_REACHED = 0.87, 0.8
_ON_HOST = (MemoryKind.PAGEABLE, MemoryKind.PINNED)


def transfer_ns(trace: Trace, known: Roofs, bytes_per_s: float) -> tuple[Floats, Floats]:
    """Limit and bytes of each row of ``device_ops``; NaN where they are unknown.

    ``bytes_per_s`` is what memory reaches.
    """
    ops = trace.device_ops
    assert ops is not None
    size = np.where(ops.known("bytes"), ops.filled("bytes", 0), np.nan).astype(np.float64)
    copies, fills = ops["kind"] == DeviceKind.COPY, ops["kind"] == DeviceKind.MEMSET
    bus = known.spec.pcie_bytes_per_s if known.spec is not None else None
    over = copies & (
        np.isin(ops.filled("from_memory", 0), _ON_HOST)
        | np.isin(ops.filled("to_memory", 0), _ON_HOST)
    )
    rate = np.where(over, (bus or np.nan) * BUS_REACHED, bytes_per_s)
    moved = np.where(copies & ~over, 2 * size, size)
    limit = np.where(copies | fills, moved / rate * 1e9, np.nan)
    collective = ops["kind"] == DeviceKind.COLLECTIVE
    traffic = np.fmax(_bus_bytes(trace), np.where(collective, _of_operators(trace), np.nan))
    link = known.spec.link_bytes_per_s if known.spec is not None else None
    of_link = traffic / ((link or np.nan) / 2 * LINK_REACHED) * 1e9
    return np.where(collective, of_link, limit), np.where(collective, traffic, moved)


def _bus_bytes(trace: Trace) -> Floats:
    """What each collective puts on the link of one rank; NaN for what is none."""
    ops = trace.device_ops
    assert ops is not None
    known = collective_arguments(trace)
    out = np.full(len(ops), np.nan)
    kinds, texts = ops.filled("collective", -1), ops.filled("collective_args", -1)
    for (kind, text), asked in known.items():
        factor = bus_factor(np.array([asked.kind]), np.array([asked.group_size or 0]))[0]
        if asked.bytes and not np.isnan(factor):
            out[(kinds == kind) & (texts == text)] = asked.bytes * factor
    return out


# Of what a rank has, what it sends at least, whatever the collective and however many ranks: an
# all-to-all of two keeps half of it.
LEAST_SENT_RATIO = 0.5


def _of_operators(trace: Trace) -> Floats:
    """What collectives put on the link by the size of their operator's tensors, where the recording
    does not say what they move (older PyTorch, and those that are operators of their own).

    At least: each rank sends what it has once, also where the switch adds it up; a gather receives
    what the others have.
    """

    def sent(of: LaunchedCall) -> float | None:
        call = of.call
        sizes = [float(call.bytes(i)) for i in call.tensors() if call.shape(i) is not None]
        if not sizes:
            return None
        if "all_reduce" in call.name:
            return max(sizes)
        if any(word in call.name for word in ("allgather", "reduce_scatter")) and len(sizes) > 1:
            return max(sizes) - min(sizes)
        told = call.name == "record_param_comms" or call.name.startswith("c10d::")
        return LEAST_SENT_RATIO * max(sizes) or None if told else None

    return launched_calls(trace).numbers(sent)
