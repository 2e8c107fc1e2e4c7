import numpy as np

from builders import TraceBuilder
from pinchpoint.analysis.host.frames import acts, called_by_program, idle_acts
from pinchpoint.trace import HostKind
from program import Program


def nested():
    """A function of the program calls the framework's, which calls an operator in an operator."""
    p = Program()
    with p.frame("train.py(9): log"):
        with p.frame("torch/_tensor.py(1): item"), p.row("aten::item"):
            p.host("aten::_local_scalar_dense", 10, kind=HostKind.OPERATOR)
        with p.row("nn.Module: Linear_0", kind=HostKind.MODULE):
            p.host("aten::linear", 10, kind=HostKind.OPERATOR)
        with p.row("phase", kind=HostKind.ANNOTATION):
            p.host("aten::add", 10, kind=HostKind.OPERATOR)
    p.host("aten::zeros", 10, kind=HostKind.OPERATOR)
    trace = p.trace()
    names = [trace.text(trace.host_ops, "name", i) for i in range(len(trace.host_ops))]
    return trace, names


def test_the_act_is_what_the_program_called():
    trace, names = nested()
    found = called_by_program(trace)
    act = {n: names[r] if r < len(names) else None for n, r in zip(names, found, strict=False)}
    assert act == {
        "train.py(9): log": None,
        "torch/_tensor.py(1): item": "torch/_tensor.py(1): item",
        "aten::item": "torch/_tensor.py(1): item",
        "aten::_local_scalar_dense": "torch/_tensor.py(1): item",
        "nn.Module: Linear_0": None,
        "aten::linear": "aten::linear",
        "phase": None,
        "aten::add": "aten::add",
        "aten::zeros": "aten::zeros",
    }


def test_the_position_of_no_row_is_no_row():
    trace, names = nested()
    found = called_by_program(trace)
    assert len(found) == len(names) + 1
    assert found[-1] == len(names)


def test_acts_are_distinct_and_leave_out_rows_without_one():
    trace, names = nested()
    rows = [names.index(n) for n in ("aten::item", "aten::_local_scalar_dense", "phase")]
    assert [names[r] for r in acts(trace, rows)] == ["torch/_tensor.py(1): item"]


def test_nothing_is_recorded():
    trace = TraceBuilder().trace()
    assert called_by_program(trace).tolist() == [0]
    assert acts(trace.__class__(source=trace.source, names=()), []).tolist() == []


def test_of_an_act_that_launches_kernels_only_the_wait_is_idle():
    p = Program()
    with p.frame("train.py(9): answer"):
        with p.frame("transformers/generation.py(1): generate"):
            with p.row("aten::mm"):
                p.kernel("gemm", 10)
            with p.frame("torch/_tensor.py(1): item"):
                p.host("aten::item", 10, kind=HostKind.OPERATOR)
        with p.frame("torch/_tensor.py(2): tolist"):
            p.host("aten::item", 10, kind=HostKind.OPERATOR)
    trace = p.trace()
    names = [trace.text(trace.host_ops, "name", i) for i in range(len(trace.host_ops))]
    waits = np.flatnonzero([name == "aten::item" for name in names])
    found = [names[row] for row in idle_acts(trace, waits)]
    assert found == ["torch/_tensor.py(1): item", "torch/_tensor.py(2): tolist"]
    launching = np.array([names.index("aten::mm")])
    assert len(idle_acts(trace, launching)) == 0
