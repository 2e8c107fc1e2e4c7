from builders import TraceBuilder
from pinchpoint.analysis.host.frames import Owner
from pinchpoint.analysis.steps.in_steps import NotRecorded
from pinchpoint.analysis.tables.call_tree import source_table

NS = ("calls", "host_total_ns", "host_self_ns", "device_forward_ns", "device_backward_ns")


def numbers(table):
    return {r.frame.function: tuple(getattr(r, c) for c in NS) for r in table.rows}


def training():
    """train.py step [0, 200) calls model.py forward [10, 90), which calls torch [20, 80)."""
    b = TraceBuilder()
    autograd = b.thread("autograd")
    b.python("train.py(1): step", 0, 200)
    b.python("model.py(9): forward", 10, 80)
    b.python("torch/nn/linear.py(5): forward", 20, 60)
    b.op("aten::mm", 30, 30, sequence=4)
    b.launch(35, 5, "gemm", 300, 100)
    b.launch(150, 5, "loss", 400, 10)
    b.op("MmBackward0", 100, 40, thread=autograd, sequence=4)
    b.launch(110, 5, "gemm", 500, 200, thread=autograd)
    return b


def test_the_innermost_function_of_the_program_bears_what_the_framework_does_for_it():
    table = source_table(training().trace())
    assert numbers(table) == {"forward": (1, 80, 80, 100, 200), "step": (1, 200, 120, 10, 0)}
    assert [r.device_ns for r in table.rows] == [300, 10]
    assert {r.owner for r in table.rows} == {Owner.USER}
    assert table.unattributed_device_ns == 0


def test_framework_code_that_nobody_called_comes_last():
    b = training()
    b.python("threading.py(3): run", 0, 1000, thread=b.thread("pin memory"))
    last = source_table(b.trace()).rows[-1]
    assert (last.frame.function, last.owner, last.host_self_ns) == ("run", Owner.FRAMEWORK, 1000)


def test_recursion_is_one_call_and_its_time_is_counted_once():
    b = TraceBuilder()
    b.python("tree.py(1): walk", 0, 100)
    b.python("tree.py(1): walk", 10, 50)
    assert numbers(source_table(b.trace())) == {"walk": (1, 100, 100, 0, 0)}


def test_work_without_a_function_is_stated():
    b = training()
    b.launch(600, 5, "lonely", 900, 7, thread=b.thread("c++"))
    b.op("aten::add", 700, 50, thread=2)
    b.launch(710, 5, "add", 950, 9, thread=2)
    assert source_table(b.trace()).unattributed_device_ns == 9


def test_a_mask_restricts_calls_and_launches():
    trace = training().trace()
    table = source_table(trace, trace.host_ops["start_ns"] < 30)
    assert numbers(table) == {"forward": (1, 80, 80, 0, 0), "step": (1, 200, 120, 10, 0)}


def test_without_stacks_it_says_what_to_record():
    b = TraceBuilder()
    b.op("aten::mm", 0, 10)
    for trace in (b.trace(), b.trace(host_ops=None)):
        answer = source_table(trace)
        assert isinstance(answer, NotRecorded)
        assert "with_stack" in answer.record
