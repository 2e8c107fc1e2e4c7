"""A file of one run of a graph: it begins with what the host does, not with the first kernel."""

from dataclasses import replace

from pinchpoint.analysis.steps.steps import steps
from pinchpoint.trace import DeviceKind, HostKind
from program import US, Program


def fed(recorder):
    """The host waits 700 us for its batch, then a kernel of 200 us runs."""
    p = Program()
    with p.row("IteratorGetNext", kind=HostKind.OPERATOR):
        p.busy(700)
    with p.row("MatMul", kind=HostKind.OPERATOR):
        p.kernel("MatMul", 200, kind=DeviceKind.KERNEL)
    trace = p.trace()
    return replace(trace, source=replace(trace.source, recorder=recorder))


def test_a_run_begins_with_its_first_operator():
    found = steps(fed("TensorFlow 1 timeline"))
    assert found.how == "none"
    assert found.typical_ns > 900 * US


def test_of_other_recordings_what_came_before_the_device_is_not_judged():
    assert steps(fed("torch.profiler")).typical_ns == 200 * US
