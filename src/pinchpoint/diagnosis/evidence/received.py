"""Tensors that the thread of the steps takes from worker processes, one after the other.

Each one was sent as a handle of shared memory: the thread opens a file, maps it and builds a tensor
around it, in the loader's ``next()``. A recording shows that as Python of the thread itself and no
wait, and looks at the run show what it is.
"""

from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.analysis.run import data_wait_ns
from pinchpoint.diagnosis.evidence.thread_of_steps import thread_of_steps
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import Trace

LEAST_RATIO = 0.1  # of the thread's time: by looks nothing smaller is told from chance
FEWEST_LOOKS = 10  # there: the shortest part of the run that is told closer than by a third
_LOADER = "torch/utils/data/dataloader.py"
_BUILDS = regex(r"torch/multiprocessing/reductions\.py\(\d+\): rebuild_")


@dataclass(frozen=True)
class Received:
    """What taking tensors one by one takes, of the mean step without the profiler."""

    ns_per_step: int
    waits_ns_per_step: int  # for batches altogether, as the run timed it
    looks: int
    of: int  # looks at the thread


def received(trace: Trace) -> Received | None:
    """None with a device, which may work meanwhile; and where looks do not find it there."""
    thread, step_ns, waits_ns = thread_of_steps(trace), step_base_ns(trace), data_wait_ns(trace)
    if thread is None or not step_ns or not computes_on_cpu(trace):
        return None
    there = [one for one in thread.spent if _is_there(one.frames)]
    of_us = sum(one.us for one in thread.spent) + thread.unplaced_us
    looks, ratio = sum(one.looks for one in there), sum(one.us for one in there) / max(of_us, 1)
    if looks < FEWEST_LOOKS or ratio < LEAST_RATIO:
        return None
    ns = round(ratio * step_ns)
    return Received(ns, max(waits_ns or 0, ns), looks, sum(one.looks for one in thread.spent))


def _is_there(frames: tuple[str, ...]) -> bool:
    """Whether it builds a tensor in a loader that it called."""
    builds = next((at for at, name in enumerate(frames) if _BUILDS.match(name)), None)
    return builds is not None and any(name.startswith(_LOADER) for name in frames[builds:])
