"""Kernels that run beside collectives, against the same kernels alone.

A collective takes multiprocessors and memory bandwidth from what is computed beside it. Where the
same kernel, launched alike, also ran alone in the recording, the difference is known.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pinchpoint.trace import DeviceKind, Trace
from pinchpoint.trace.arrays import Floats, Rows
from pinchpoint.trace.intervals import Intervals, covered_before, flatten

ALONE_RATIO = 0.05  # of a kernel's time beside a collective: no more is alone
BESIDE_RATIO = 0.5  # of its time: with less, the kernel is mostly what it is alone
FEWEST_ALONE = 3  # runs that a median is taken of
MOST_KINDS = 200  # of kernels, those with most time


@dataclass(frozen=True, eq=False)
class Slowed:
    """Kernels that are alike and ran beside collectives."""

    rows: Rows  # of device_ops
    alone_ratio: float  # what they would take alone, as a share of what they took; below 1


def slowed_by(trace: Trace, collectives: Rows) -> tuple[Slowed, ...]:
    """Kernels that these collectives (rows of ``device_ops``) slow down, most time first."""
    ops = trace.device_ops
    if ops is None or not len(collectives):
        return ()
    kernels = np.flatnonzero(ops["kind"] == DeviceKind.KERNEL)
    everything = np.flatnonzero(ops["kind"] == DeviceKind.COLLECTIVE)
    beside_any = _share(trace, kernels, everything)
    beside_these = _share(trace, kernels, collectives)
    took = ops["duration_ns"][kernels]
    found = []
    for alike in _alike(trace, kernels):
        alone = alike[beside_any[alike] <= ALONE_RATIO]
        beside = alike[beside_these[alike] >= BESIDE_RATIO]
        if len(alone) < FEWEST_ALONE or not len(beside):
            continue
        ratio = float(np.median(took[alone]) / max(np.median(took[beside]), 1))
        if ratio < 1:
            found.append(Slowed(kernels[beside], ratio))
    return tuple(found)


def _share(trace: Trace, kernels: Rows, collectives: Rows) -> Floats:
    """Share of each kernel's time in which one of the collectives ran."""
    ops = trace.device_ops
    assert ops is not None
    busy: Intervals = flatten(ops["start_ns"][collectives], ops.end_ns[collectives])
    start, end = ops["start_ns"][kernels], ops.end_ns[kernels]
    inside = covered_before(busy, end) - covered_before(busy, start)
    share: Floats = inside / np.maximum(end - start, 1)
    return share


def _alike(trace: Trace, kernels: Rows) -> Iterator[Rows]:
    """Positions of kernels with one name and grid, for those with most time."""
    ops = trace.device_ops
    assert ops is not None
    grid = ops.filled("grid", -1)[kernels].astype(np.int64)
    key = ops["name"][kernels].astype(np.int64) * (len(trace.names) + 1) + grid + 1
    _, which = np.unique(key, return_inverse=True)
    total = np.bincount(which, ops["duration_ns"][kernels])
    order = np.argsort(which, kind="stable")
    edges = np.searchsorted(which[order], np.arange(len(total) + 1))
    for kind in np.argsort(-total, kind="stable")[:MOST_KINDS].tolist():
        yield order[edges[kind] : edges[kind + 1]]
