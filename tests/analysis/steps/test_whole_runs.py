"""A file of one run of a graph: it begins with what the host does, not with the first kernel."""

from dataclasses import replace

from builders import TraceBuilder
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


OPERATORS = [
    "NoOp",
    "_Arg",
    "Cast",
    "Prod",
    "Mul",
    "MatMul",
    "BiasAdd",
    "Sigmoid",
    "MatMul",
    "BiasAddGrad",
    "Update",
]


def runs_in_a_pool(count, recorder):
    """Runs of one graph, 5 ms apart, whose operators a pool of three threads executes."""
    b = TraceBuilder()
    for _ in range(2):
        b.thread("pool")
    for run in range(count):
        for position, name in enumerate(OPERATORS):
            at = (run * 6_000 + position * 100) * US
            b.op(name, at, 90 * US, thread=(run * position + position // 3) % 3)
    trace = b.trace()
    return replace(trace, source=replace(trace.source, recorder=recorder))


def test_runs_of_a_graph_are_steps_whichever_threads_execute_them():
    found = steps(runs_in_a_pool(5, "TensorFlow 1 timeline"))
    assert (found.how, len(found), found.typical_ns) == ("inferred", 5, 6_000 * US)


def test_one_run_is_none():
    assert steps(runs_in_a_pool(1, "TensorFlow 1 timeline")).how == "none"
