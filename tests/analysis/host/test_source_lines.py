import pytest

from builders import TraceBuilder
from pinchpoint.analysis.host.source_lines import Place, place_of
from pinchpoint.analysis.host.timeline import host_rows
from pinchpoint.trace import ApiKind, HostKind


def place_named(builder, name):
    trace = builder.trace()
    rows = host_rows(trace)
    row = next(i for i in range(len(rows)) if trace.names[rows.name[i]] == name)
    return place_of(trace, row)


def test_a_sync_is_found_in_the_users_function_with_its_operator_and_module():
    b = TraceBuilder()
    b.python("train.py(40): main", 0, 1000)
    b.annotation("forward", 10, 900)
    b.op("nn.Module: Block_0", 20, 800, kind=HostKind.MODULE)
    b.python("model.py(12): forward", 30, 700)
    b.python("torch/_tensor.py(5): item_wrapper", 40, 600)
    b.python("<built-in method item of Tensor object at 0x7f>", 50, 500)
    b.op("aten::item", 60, 400)
    b.op("aten::_local_scalar_dense", 70, 300)
    b.api("cudaStreamSynchronize", 80, 200, kind=ApiKind.SYNC_STREAM)
    assert place_named(b, "cudaStreamSynchronize") == Place(
        file="model.py",
        line=12,
        function="forward",
        module="Block_0",
        operator="aten::item",
        annotation="forward",
    )


def test_users_code_comes_before_an_installed_librarys():
    b = TraceBuilder()
    b.python("train.py(3): step", 0, 100)
    b.python("transformers/models/gpt2/modeling_gpt2.py(9): forward", 10, 50)
    b.op("aten::mm", 20, 10)
    assert place_named(b, "aten::mm").file == "train.py"


def test_a_library_is_better_than_nothing():
    b = TraceBuilder()
    b.python("threading.py(3): run", 0, 100)
    b.python("vllm/v1/worker/gpu_model_runner.py(9): execute_model", 10, 50)
    b.op("aten::mm", 20, 10)
    assert place_named(b, "aten::mm").function == "execute_model"


def test_an_operator_that_calls_python_ends_at_the_frame():
    b = TraceBuilder()
    b.op("my::custom", 0, 100)
    b.python("ops.py(3): impl", 10, 80)
    b.op("aten::mm", 20, 10)
    assert place_named(b, "aten::mm").operator == "aten::mm"


def test_step_markers_are_no_annotation():
    b = TraceBuilder()
    b.step(3, 0, 100)
    b.op("aten::mm", 20, 10)
    assert place_named(b, "aten::mm").annotation is None


def test_a_backward_operator_is_where_its_forward_was():
    b = TraceBuilder()
    autograd = b.thread("autograd")
    b.python("model.py(12): forward", 0, 50)
    b.op("nn.Module: Linear_3", 5, 40, kind=HostKind.MODULE)
    b.op("aten::addmm", 10, 20, sequence=7)
    b.op("autograd::engine::evaluate_function: AddmmBackward0", 60, 30, sequence=7, thread=autograd)
    b.op("AddmmBackward0", 61, 28, sequence=7, thread=autograd)
    b.op("aten::mm", 62, 20, thread=autograd)
    b.launch(65, 5, "gemm", 80, 10, thread=autograd)
    found = place_named(b, "cudaLaunchKernel")
    assert found == Place(
        file="model.py",
        line=12,
        function="forward",
        module="Linear_3",
        operator="AddmmBackward0",
        backward=True,
    )


@pytest.mark.parametrize(
    ("inside", "function"),
    [((), "forward"), (("model.py(30): backward",), "backward")],
    ids=["the node's operator", "a function of the program that the node calls"],
)
def test_a_node_on_the_thread_of_the_steps_is_not_where_backward_was_called(inside, function):
    b = TraceBuilder()
    b.python("train.py(3): main", 0, 200)
    b.python("model.py(12): forward", 1, 50)
    b.op("aten::addmm", 10, 20, sequence=7)
    b.op("autograd::engine::evaluate_function: AddmmBackward0", 60, 30, sequence=7)
    for frame in inside:
        b.python(frame, 61, 28)
    b.op("aten::mm", 62, 20)
    assert place_named(b, "aten::mm").function == function


def test_nothing_around_is_said_as_nothing():
    b = TraceBuilder()
    b.api("cudaDeviceSynchronize", 0, 5, kind=ApiKind.SYNC_DEVICE)
    assert place_named(b, "cudaDeviceSynchronize") == Place()
