import pytest

from builders import TraceBuilder
from pinchpoint.analysis.host.timeline import NO_ROW, host_rows
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.trace import ApiKind, HostKind


def kinds(builder):
    """Name of each host row and its kind."""
    trace = builder.trace()
    code, rows = activity(trace), host_rows(trace)
    return {trace.names[rows.name[i]]: GapKind(code[i]) for i in range(len(rows))}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", GapKind.DATA),
        ("torch/utils/data/dataloader.py(736): __next__", GapKind.DATA),
        ("torch/_dynamo/convert_frame.py(1): __call__", GapKind.COMPILE),
        ("torch/_inductor/compile_fx.py(812): compile_fx_inner", GapKind.COMPILE),
        ("/x/site-packages/triton/compiler/compiler.py(9): compile", GapKind.COMPILE),
        ("triton/backends/nvidia/compiler.py(300): make_ptx", GapKind.COMPILE),
        ("torch/_dynamo/eval_frame.py(956): compile_wrapper", GapKind.PYTHON),
        ("torch/_inductor/compile_fx.py(1767): run", GapKind.PYTHON),
        ("torch/_inductor/codecache.py(1100): __call__", GapKind.PYTHON),
        ("triton/backends/nvidia/driver.py(634): __call__", GapKind.PYTHON),
        ("triton/backends/compiler.py(81): get_arg_specialization", GapKind.PYTHON),
        ("triton/compiler/compiler.py(465): __getattribute__", GapKind.PYTHON),
        ("<built-in function collect>", GapKind.GC),
        ("torch/serialization.py(945): save", GapKind.CHECKPOINT),
        ("PIL/Image.py(2592): save", GapKind.LOGGING),
        ("<built-in method write of _io.TextIOWrapper object at 0x7f>", GapKind.LOGGING),
        ("torch/profiler/profiler.py(884): step", GapKind.PROFILER),
        ("threading.py(655): wait", GapKind.WAIT),
        ("<built-in function sleep>", GapKind.WAIT),
        ("<built-in method wait of pybind11_detail_function_record object at 0x7f>", GapKind.WAIT),
        ("gloo:all_reduce", GapKind.HOST_COLLECTIVE),
        ("<built-in method run_backward of torch._C._EngineBase object at 0x7f>", GapKind.AUTOGRAD),
        ("train.py(3): step", GapKind.PYTHON),
        ("<built-in method item of Tensor object at 0x7f>", GapKind.PYTHON),
    ],
)
def test_what_frames_and_annotations_stand_for(name, kind):
    b = TraceBuilder()
    b.python(name, 0, 10)
    assert kinds(b) == {name: kind}


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (ApiKind.SYNC_STREAM, GapKind.SYNC),
        (ApiKind.MALLOC, GapKind.MALLOC),
        (ApiKind.FREE, GapKind.MALLOC),
        (ApiKind.COPY, GapKind.COPY_CALL),
        (ApiKind.GRAPH_LAUNCH, GapKind.GRAPH_LAUNCH),
        (ApiKind.MODULE_LOAD, GapKind.CODE_LOAD),
        (ApiKind.LAUNCH, GapKind.DISPATCH),
        (ApiKind.QUERY, GapKind.DISPATCH),
    ],
)
def test_what_calls_do(call, kind):
    b = TraceBuilder()
    b.api("call", 0, 10, kind=call)
    assert kinds(b) == {"call": kind}


def test_everything_inside_a_loader_is_loading():
    b = TraceBuilder()
    b.python("torch/utils/data/dataloader.py(736): __next__", 0, 100)
    b.python("dataset.py(22): __getitem__", 10, 50)
    b.op("aten::stack", 20, 10)
    b.api("cudaStreamSynchronize", 70, 10, kind=ApiKind.SYNC_STREAM)
    assert set(kinds(b).values()) == {GapKind.DATA}


def test_the_innermost_of_two_meanings_decides():
    b = TraceBuilder()
    b.python("torch/utils/data/dataloader.py(736): __next__", 0, 100)
    b.python("<built-in function collect>", 10, 50)
    assert kinds(b)["<built-in function collect>"] == GapKind.GC


def test_waiting_explains_frames_inside_it_but_not_work():
    b = TraceBuilder()
    b.python("<built-in method run_backward of X>", 0, 100)
    b.python("hooks.py(2): on_grad", 10, 50)
    b.op("aten::mm", 20, 10)
    b.api("cudaStreamSynchronize", 70, 10, kind=ApiKind.SYNC_STREAM)
    found = kinds(b)
    assert found["hooks.py(2): on_grad"] == GapKind.AUTOGRAD
    assert found["aten::mm"] == GapKind.DISPATCH
    assert found["cudaStreamSynchronize"] == GapKind.SYNC


def test_a_wrapper_around_the_whole_loop_explains_nothing():
    b = TraceBuilder()
    b.python("mlflow/utils/autologging.py(5): patched_train", 0, 300)
    b.python("train.py(3): loop", 1, 298)
    for i in range(2):
        b.step(i, 10 + i * 100, 100)
    b.python("mlflow/tracking/client.py(9): log_metric", 150, 20)
    found = kinds(b)
    assert found["train.py(3): loop"] == GapKind.PYTHON
    assert found["mlflow/tracking/client.py(9): log_metric"] == GapKind.LOGGING


def test_compiler_rows_are_compiling_with_all_they_call():
    b = TraceBuilder()
    b.op("backend_compile", 0, 100, kind=HostKind.COMPILE)
    b.python("x.py(1): lower", 10, 20)
    assert set(kinds(b).values()) == {GapKind.COMPILE}


def test_no_row_is_nothing_recorded():
    b = TraceBuilder()
    b.op("aten::mm", 0, 10)
    assert activity(b.trace())[NO_ROW] == GapKind.UNRECORDED
