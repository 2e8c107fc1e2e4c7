from builders import TraceBuilder
from pinchpoint.analysis.steps.in_steps import NotRecorded
from pinchpoint.analysis.tables.modules import modules
from pinchpoint.trace import HostKind


def call(b, name, at, takes, thread=0):
    b.op(f"nn.Module: {name}", at, takes, kind=HostKind.MODULE, thread=thread)


def model():
    """Net_0 [0, 100) calls Linear_0 [10, 50) and ReLU_0 [60, 80); the loss is outside."""
    b = TraceBuilder()
    autograd = b.thread("autograd")
    call(b, "Net_0", 0, 100)
    call(b, "Linear_0", 10, 40)
    b.op("aten::addmm", 12, 20, sequence=1)
    b.launch(15, 2, "gemm", 200, 30)
    call(b, "ReLU_0", 60, 20)
    b.launch(65, 2, "relu", 240, 5)
    b.launch(90, 2, "residual", 250, 3)
    b.launch(110, 2, "loss", 260, 7)
    b.op("AddmmBackward0", 120, 50, thread=autograd, sequence=1)
    b.launch(125, 2, "gemm", 300, 60, thread=autograd)
    return b


def test_the_tree_has_inclusive_and_own_times_of_both_passes():
    answer = modules(model().trace())
    assert [(r.path, r.depth, r.class_name, r.calls) for r in answer.rows] == [
        ("Net_0", 0, "Net", 1),
        ("Net_0/Linear_0", 1, "Linear", 1),
        ("Net_0/ReLU_0", 1, "ReLU", 1),
    ]
    net, linear, _ = answer.rows
    assert (net.host_total_ns, net.host_self_ns) == (100, 40)
    assert (net.device_forward_ns, net.device_forward_self_ns) == (38, 3)
    assert (net.device_backward_ns, net.device_backward_self_ns) == (60, 0)
    assert (linear.device_forward_ns, linear.device_backward_self_ns) == (30, 60)


def test_what_runs_under_a_module_but_no_operator_is_found_too():
    # A launch without an operator hangs off the module itself.
    assert modules(model().trace()).rows[2].device_forward_self_ns == 5


def test_work_outside_any_module_is_stated():
    b = model()
    b.op("aten::nll_loss", 180, 10)
    b.launch(182, 2, "nll", 400, 11)
    assert modules(b.trace()).outside_device_ns == 11


def test_a_module_called_again_in_the_backward_pass_is_charged_where_it_runs():
    b = model()
    b.op("CheckpointFunctionBackward", 300, 100, thread=1, sequence=9)
    call(b, "Linear_0", 310, 50, thread=1)
    b.op("aten::addmm", 320, 20, thread=1, sequence=12)
    b.launch(325, 2, "gemm", 500, 30, thread=1)
    net, linear, _ = modules(b.trace()).rows
    assert (linear.path, linear.calls, linear.device_forward_ns) == ("Net_0/Linear_0", 2, 60)
    assert net.device_forward_ns == 38


def test_a_module_that_calls_itself_is_counted_once():
    b = TraceBuilder()
    call(b, "Tree_0", 0, 100)
    call(b, "Tree_0", 10, 50)
    b.launch(20, 2, "kernel", 200, 30)
    (row,) = modules(b.trace()).rows
    assert (row.calls, row.host_total_ns, row.host_self_ns) == (1, 100, 100)
    assert (row.device_forward_ns, row.device_forward_self_ns) == (30, 30)


def test_a_mask_restricts_calls():
    trace = model().trace()
    answer = modules(trace, trace.host_ops["start_ns"] >= 10)
    assert [r.calls for r in answer.rows] == [0, 1, 1]


def test_without_modules_it_says_what_to_record():
    b = TraceBuilder()
    b.op("aten::mm", 0, 10)
    for trace in (b.trace(), b.trace(host_ops=None)):
        assert isinstance(modules(trace), NotRecorded)
