"""Which stage of a loader with worker processes keeps it from going faster, by who is busy.

A batch is made by a worker, taken in by one thread of the main process that copies it into pinned
memory, and handed to the thread of the steps. Each tensor is sent as a handle of shared memory: the
thread connects to the worker, receives a file's descriptor, maps it and builds a tensor around it,
in Python. Where looks find that thread at this most of the time, and the workers are idle, a batch
is too many tensors, and neither more workers nor quicker ones help.
"""

import numpy as np

from pinchpoint.analysis.replay import Change, DropDeviceOps, DropSyncs, RemoveHostTime
from pinchpoint.analysis.replay import ScaleHostSpans as Scale
from pinchpoint.analysis.time.stalls import lock_waits, long_pieces, stalls
from pinchpoint.diagnosis.evidence.device_work import DeviceWork, acts_behind, device_work
from pinchpoint.diagnosis.finding import Evidence
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import MemoryKind, Trace, once_per_trace

# One thread at one thing is the pace of all: at half of its time that is the largest part of it.
MOSTLY_RATIO = 0.5
FEWEST_LOOKS = 20  # of fewer a share is known no closer than to a tenth
SMALL_COPY_BYTES = 64 * 1024  # takes under 2 µs on the link, less than the call
FEWEST_COPIES = 16  # a step; at 5 to 10 µs a call, 0.1 ms, and a batch has a handful of tensors
_PINS = regex(r"torch/utils/data/_utils/pin_memory\.py\(\d+\): _pin_memory_loop$")
_BUILDS = regex(r"torch/multiprocessing/reductions\.py\(\d+\): rebuild_")
_COPIES = regex(r"torch/utils/data/_utils/pin_memory\.py\(\d+\): pin_memory$")
_WAITS = regex(r"(multiprocessing/(connection|synchronize)|queue|selectors|threading)\.py\(")


@dataclass(frozen=True)
class TakenApart:
    """A thread that takes batches in for the thread of the steps: shares of its time, by looks."""

    thread: str
    looks: int
    receiving_ratio: float  # it takes in one tensor after the other
    pinning_ratio: float
    waiting_ratio: float  # for workers, or for the thread of the steps to take a batch

    @property
    def bounds(self) -> bool:
        """Whether taking tensors in is what it mostly does, and waiting is not."""
        return self.receiving_ratio >= MOSTLY_RATIO > self.waiting_ratio

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """What it was found at."""
        return (
            Evidence(f"{self.thread}: taking tensors in one by one", self.receiving_ratio, "ratio"),
            Evidence("the same thread: copying them to pinned memory", self.pinning_ratio, "ratio"),
            Evidence("the same thread: waiting", self.waiting_ratio, "ratio"),
        )


@once_per_trace
def taken_apart(trace: Trace) -> TakenApart | None:
    """None where the run was not sampled, or no thread takes the batches in."""
    samples = trace.run.samples if trace.run else None
    threads = () if samples is None else (t for t in samples.threads if not t.main)
    for thread in threads:
        spent = [(one.frames, one.us) for one in thread.spent]
        pinning = [us for frames, us in spent if any(map(_PINS.match, frames))]
        whole_us = sum(us for _, us in spent) + thread.unplaced_us
        if thread.looks < FEWEST_LOOKS or 2 * sum(pinning) < whole_us or not whole_us:
            continue
        at = {"receiving": 0, "pinning": 0, "waiting": 0}
        for frames, us in spent:
            if (stage := _stage(frames)) is not None:
                at[stage] += us
        ratios = (at[stage] / whole_us for stage in ("receiving", "pinning", "waiting"))
        return TakenApart(thread.name, thread.looks, *ratios)
    return None


def _stage(frames: tuple[str, ...]) -> str | None:
    if any(map(_BUILDS.match, frames)):
        return "receiving"
    if any(map(_COPIES.match, frames)):
        return "pinning"
    return "waiting" if frames and _WAITS.match(frames[0]) else None


def small_copies(trace: Trace, kinds: tuple[MemoryKind, ...]) -> DeviceWork | None:
    """Small copies from these kinds of memory to the device; None where a step has few."""
    ops = trace.device_ops
    if ops is None:
        return None
    small = np.isin(ops.filled("from_memory", 0), kinds)
    small &= ops.filled("to_memory", 0) == MemoryKind.DEVICE
    small &= ops.filled("bytes", 0) <= SMALL_COPY_BYTES
    copies = device_work(trace, small, "device time of small copies")
    return None if copies is None or copies.count < FEWEST_COPIES else copies


def without_copies(trace: Trace, copies: DeviceWork) -> tuple[Change, ...]:
    """What a step is without these copies."""
    around, calls = acts_behind(trace, copies.rows)
    return DropSyncs(calls), DropDeviceOps(copies.rows), Scale(around, 0.0)


def in_few_tensors(trace: Trace) -> tuple[Change, ...]:
    """What goes, beside the waits, where a batch is a few large tensors: the lock that the thread
    takes from the one of the steps for each of them, and a copy to the device of each."""
    held = max(
        (lock_waits(trace), long_pieces(trace), stalls(trace)),
        key=lambda found: int(found.excess_ns.sum()),
    )
    copies = small_copies(trace, (MemoryKind.PINNED,))
    freed = (RemoveHostTime(held.end_ns - held.excess_ns, held.end_ns),) if len(held.rows) else ()
    return (*freed, *(() if copies is None else without_copies(trace, copies)))
