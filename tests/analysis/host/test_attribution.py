from builders import TraceBuilder
from pinchpoint.analysis.host.attribution import (
    backward_nodes,
    forward_rows,
    launched_count,
    launched_ns,
)

NODE = "autograd::engine::evaluate_function: AddmmBackward0"


def two_passes():
    """Rows 0-1: forward linear over addmm; 2-3: its backward node over mm, on another thread."""
    b = TraceBuilder()
    autograd = b.thread("autograd")
    b.op("aten::linear", 0, 50, sequence=7)
    b.op("aten::addmm", 10, 20, sequence=7)
    b.launch(12, 5, "gemm", 100, 30)
    b.op(NODE, 60, 30, thread=autograd, sequence=7)
    b.op("aten::mm", 65, 20, thread=autograd)
    b.launch(67, 5, "gemm", 200, 40, thread=autograd)
    return b


def test_device_time_goes_to_the_launching_row():
    trace = two_passes().trace()
    assert launched_ns(trace).tolist() == [0, 30, 0, 40]
    assert launched_count(trace).tolist() == [0, 1, 0, 1]
    assert launched_ns(trace, trace.device_ops["start_ns"] > 150).tolist() == [0, 0, 0, 40]


def test_what_runs_in_a_backward_node_belongs_to_the_innermost_forward_operator():
    trace = two_passes().trace()
    assert backward_nodes(trace).tolist() == [False, False, True, False]
    assert forward_rows(trace).tolist() == [0, 1, 1, 1]


def test_a_backward_node_without_its_forward_operator_is_unknown():
    b = two_passes()
    b.op(NODE, 150, 10, thread=1, sequence=99)
    b.op(NODE, 170, 10, thread=1)
    assert forward_rows(b.trace()).tolist() == [0, 1, 1, 1, 6, 6]


def test_a_number_used_on_two_forward_threads_is_not_resolved():
    b = two_passes()
    b.op("aten::relu", 5, 10, thread=b.thread("replica"), sequence=7)
    trace = b.trace()
    assert forward_rows(trace).tolist()[-2:] == [5, 5]


def test_an_old_recording_names_its_nodes_without_prefix():
    b = TraceBuilder()
    b.op("aten::mul", 0, 50, sequence=3)
    b.op("MulBackward0", 60, 30, thread=b.thread("autograd"), sequence=3)
    assert forward_rows(b.trace()).tolist() == [0, 0]
