from builders import TraceBuilder
from pinchpoint.analysis.tables.operators import operators
from pinchpoint.trace import ApiKind, HostKind

NS = ("calls", "host_total_ns", "host_self_ns", "host_api_ns", "device_total_ns", "device_self_ns")


def numbers(table):
    return {row.name: tuple(getattr(row, c) for c in NS) for row in table.rows}


def linear():
    """aten::linear [0, 100) calls aten::addmm [10, 60), which launches at 20 for 10."""
    b = TraceBuilder()
    b.op("aten::linear", 0, 100)
    b.op("aten::addmm", 10, 50)
    b.launch(20, 10, "gemm", 200, 40)
    b.launch(80, 5, "bias", 250, 7)
    return b


def test_self_is_without_callees_and_driver_calls_and_total_is_with_them():
    table = operators(linear().trace())
    assert numbers(table) == {
        "aten::linear": (1, 100, 45, 5, 47, 7),
        "aten::addmm": (1, 50, 40, 10, 40, 40),
    }
    assert [r.name for r in table.rows] == ["aten::addmm", "aten::linear"]
    assert table.device_ns == 47
    assert table.device_share(table.rows[0]) == 40 / 47


def test_python_between_operators_passes_their_cost_on():
    b = TraceBuilder()
    b.op("outer", 0, 100)
    b.python("model.py(3): forward", 5, 90)
    b.op("inner", 10, 50)
    b.launch(70, 10, "kernel", 200, 40)
    assert numbers(operators(b.trace())) == {
        "outer": (1, 100, 40, 10, 40, 40),
        "inner": (1, 50, 50, 0, 0, 0),
    }


def test_recursion_is_one_call():
    b = TraceBuilder()
    b.op("aten::sum", 0, 100)
    b.op("aten::sum", 10, 50)
    b.launch(20, 10, "kernel", 200, 40)
    assert numbers(operators(b.trace())) == {"aten::sum": (1, 100, 90, 10, 40, 40)}


def test_the_same_operator_on_two_threads_is_two_calls():
    b = TraceBuilder()
    other = b.thread("other")
    b.op("aten::mm", 0, 100)
    b.op("aten::mm", 10, 50, thread=other)
    assert numbers(operators(b.trace()))["aten::mm"][:3] == (2, 150, 150)


def test_shapes_split_an_operator_when_asked():
    b = TraceBuilder()
    b.op("aten::mm", 0, 100, shapes="[[2, 3], [3, 4]]")
    b.op("aten::mm", 200, 50, shapes="[[2, 3], [3, 4]]")
    b.op("aten::mm", 300, 70, shapes="[[9, 3], [3, 4]]")
    trace = b.trace()
    assert [(r.shapes, r.calls) for r in operators(trace).rows] == [(None, 3)]
    assert [(r.shapes, r.calls) for r in operators(trace, by_shapes=True).rows] == [
        ("[[2, 3], [3, 4]]", 2),
        ("[[9, 3], [3, 4]]", 1),
    ]


def test_a_mask_restricts_the_calls():
    b = linear()
    b.op("aten::linear", 300, 10)
    trace = b.trace()
    table = operators(trace, trace.host_ops["start_ns"] >= 300)
    assert numbers(table) == {"aten::linear": (1, 10, 10, 0, 0, 0)}
    assert table.device_ns == 0


def test_device_time_without_an_operator_is_stated():
    b = TraceBuilder()
    b.launch(0, 5, "lonely", 10, 20)
    b.api("cudaMalloc", 50, 5, kind=ApiKind.MALLOC)
    table = operators(b.trace())
    assert table.rows == ()
    assert (table.device_ns, table.unattributed_device_ns) == (20, 20)


def test_an_absent_side_gives_an_empty_table():
    assert operators(TraceBuilder().trace(host_ops=None, device_ops=None)).rows == ()


def test_functions_of_a_compiler_are_no_operators():
    b = TraceBuilder()
    b.op("Torch-Compiled Region: 0/0", 0, 100, kind=HostKind.COMPILE)
    b.python("torch/_dynamo/eval_frame.py(7): fn", 10, 50)
    assert list(numbers(operators(b.trace()))) == ["Torch-Compiled Region: 0/0"]
