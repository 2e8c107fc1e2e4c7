import numpy as np

from builders import TraceBuilder
from pinchpoint.analysis.ranks.lost_time import USUAL_LAUNCH_NS, host_ns
from pinchpoint.analysis.steps.steps import steps

MS = 1_000_000


def issued_ahead(behind_ms):
    """Steps of 10 ms on the device; one launch a step takes 9 ms because the queue is full."""
    b = TraceBuilder()
    for i in range(6):
        at = 10 * MS * i
        b.step(i, at, 10 * MS)
        b.launch(at, 9 * MS, "gemm", at + round(behind_ms * MS), 10 * MS)
    return b.trace()


def own_ns(trace):
    found = steps(trace)
    issue_end = np.append(found.host_start_ns[1:], found.host_end_ns[-1:])
    return host_ns(trace, found, issue_end)


def test_a_host_that_waits_for_room_in_the_queue_does_not_work():
    assert own_ns(issued_ahead(behind_ms=50)).tolist() == [MS + USUAL_LAUNCH_NS] * 6


def test_a_slow_launch_without_a_queue_is_work():
    assert own_ns(issued_ahead(behind_ms=0.1)).tolist() == [10 * MS] * 6


def test_a_queue_is_full_before_a_step_has_as_many_operations():
    """Of 1,400 operations a step 1,024 wait in the queue: its host is less than a step ahead."""
    b = TraceBuilder()
    count, each = 1400, 10_000
    for i in range(3):
        at = i * count * each
        b.step(i, at, count * each)
        for k in range(count):
            long = 4 * USUAL_LAUNCH_NS if i == 2 and k == 1200 else 1_000
            b.launch(at + k * each, long, "gemm", at + k * each + 1030 * each, each)
    first, _, last = own_ns(b.trace()).tolist()
    assert first - last == 3 * USUAL_LAUNCH_NS
