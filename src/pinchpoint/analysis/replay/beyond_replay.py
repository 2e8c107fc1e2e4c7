"""What a step that was timed takes beyond its replay: whose time it is, and what a fix leaves.

The recorded steps, replayed without recording cost, are shorter than those that the run timed by
itself. The device's work is known to a few per cent; what the host takes, and what recording it
cost, is not. So most of the difference is the host's, and a fix that leaves little of the host's
time leaves as little of the difference.
"""

from math import hypot

import numpy as np

from pinchpoint.analysis.host.frames import owners
from pinchpoint.analysis.replay.graph import Graph
from pinchpoint.analysis.replay.ranges import AS_IT_IS
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace

# By which steps without the profiler and recorded ones are apart: two windows differ by less.
APART_RATIO = 0.1


@dataclass(frozen=True)
class Replayed:
    """One replayed step, in nanoseconds."""

    step_ns: float
    device_ns: float  # of it, with work of the device

    @property
    def host_ns(self) -> float:
        """The rest, in which the device has none."""
        return max(self.step_ns - self.device_ns, 0.0)


def replayed(graph: Graph, step_ns: float) -> Replayed:
    """A step of that length, with what the graph's operations take of it."""
    return Replayed(step_ns, min(float(graph.op_duration_ns.sum()) / graph.steps, step_ns))


def with_timed(timed_ns: float, before: Replayed, after: Replayed, recording_ns: float) -> float:
    """The step ``after`` in nanoseconds, where the one ``before`` takes ``timed_ns``.

    The difference is shared out as the two parts of the step are doubtful, and each part grows by
    the same factor before and after. ``recording_ns`` was taken out of the recorded step. Of a step
    that takes less than its replay, or is one of the device or the host alone, all parts are scaled
    alike. No step is longer than before.
    """
    more_ns = timed_ns - before.step_ns
    if more_ns <= 0 or not before.host_ns or not before.device_ns:
        return timed_ns * min(after.step_ns / before.step_ns, 1.0)
    host = hypot(AS_IT_IS.host * before.host_ns, AS_IT_IS.recording * recording_ns)
    device = AS_IT_IS.device * before.device_ns
    of_host = more_ns * host**2 / (host**2 + device**2)
    device_times = 1 + (more_ns - of_host) / before.device_ns
    host_times = 1 + of_host / before.host_ns
    return min(after.device_ns * device_times + after.host_ns * host_times, timed_ns)


def rest_as_recorded(trace: Trace, timed_ns: float, replayed_ns: float) -> float:
    """How many times as long as scaled the rest of a step may be after a fix: as recorded.

    What made recorded steps longer than those that the run timed may be the very part that a fix
    takes away. Not where stacks were recorded, which make all that the host does longer.
    """
    if owners(trace).any() or replayed_ns <= (1 + APART_RATIO) * timed_ns:
        return 1.0
    return replayed_ns / timed_ns


def waits_beyond_ns(trace: Trace, more_ns: float, before: Graph, after: Graph) -> float:
    """Of what the mean of timed steps has more than the usual one, the waits for batches that
    ``after`` is without: where the run timed these, they tell how much of it they are."""
    waits = trace.run.data_wait_ns if trace.run else ()
    waited_ns = int(before.batch_wait_ns.sum())
    if not len(waits) or not waited_ns or more_ns <= 0:
        return 0.0
    gone_ratio = 1 - int(after.batch_wait_ns.sum()) / waited_ns
    return gone_ratio * min(max(float(np.mean(waits) - np.median(waits)), 0.0), more_ns)


def longest_left_ns(timed_ns: float, replayed_ns: float, left_ns: float) -> int:
    """The longest that a step may be where it takes much longer than the recorded ones, which a fix
    leaves ``left_ns`` of; else 0. Nobody knows of which part it is longer, so that the fix is sure
    to win no more than it does of a recorded step."""
    if timed_ns <= (1 + APART_RATIO) * replayed_ns:
        return 0
    return round(timed_ns - (replayed_ns - left_ns))


def of_timed_ns(saving_ns: int, timed_ns: int, recorded: Replayed, leaves_ns: int) -> int:
    """What a fix wins of a step that takes ``timed_ns`` without the profiler, where it takes
    ``saving_ns`` of the recorded one and leaves so much of the device's work.

    Work of the device is as recorded; all else is as many times as long as it was then. All that is
    won of a step that was not recorded as longer.
    """
    if timed_ns >= recorded.step_ns:
        return saving_ns
    device_ns = min(recorded.device_ns, recorded.step_ns)
    of_device_ns = min(max(device_ns - leaves_ns, 0), saving_ns)
    host_ratio = max(timed_ns - device_ns, 0) / max(recorded.host_ns, 1)
    return round(of_device_ns + (saving_ns - of_device_ns) * host_ratio)
