"""Who wrote a Chrome trace, by positive signs alone; and that no other trace is corrected."""

import json

import pytest

from kineto_documents import event, kernel, launched, op, step, written
from pinchpoint import diagnose
from pinchpoint.analysis.replay.recording_cost import why_uncalibrated
from pinchpoint.importers.kineto import read

PLAIN = [op("forward", 0, 90), *launched("k", 10, 20, 30, 1)]


def recorder(tmp_path, *events, **frame):
    return read(written(tmp_path, json.dumps(frame | {"traceEvents": list(events)}))).source


@pytest.mark.parametrize(
    "sign",
    [
        pytest.param(op("aten::mm", 1, 2), id="operator"),
        pytest.param(event("aten::mm", "Operator", 1, 2), id="operator of 2021"),
        pytest.param(step(3, 0, 95), id="marker"),
        pytest.param(event("ProfilerStep#3", "Operator", 0, 95), id="marker of 2021"),
        pytest.param(event("train.py(7): step", "python_function", 1, 2), id="frame"),
        pytest.param(event("nn.Module: Linear_0", "python_function", 1, 2), id="module"),
        pytest.param(
            event("Optimizer.step#Adam.step", "user_annotation", 1, 2), id="optimizer's range"
        ),
    ],
)
def test_an_event_with_category_and_name_of_pytorch_shows_its_profiler(tmp_path, sign):
    assert recorder(tmp_path, *PLAIN, sign).recorder == "torch.profiler"


@pytest.mark.parametrize(
    "member",
    ["schemaVersion", "deviceProperties", "record_shapes", "with_stack", "baseTimeNanoseconds"],
)
def test_a_member_around_the_events_shows_it(tmp_path, member):
    assert recorder(tmp_path, *PLAIN, **{member: 1}).recorder == "torch.profiler"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(op("step", 1, 2), id="a borrowed category"),
        pytest.param(event("aten::mm", "op", 1, 2), id="a name alone"),
        pytest.param(event("step", "python_function", 1, 2), id="a function without its line"),
        pytest.param(kernel("at::native::add", 60, 2, 9), id="a kernel of PyTorch"),
    ],
)
def test_anything_else_is_no_sign(tmp_path, other):
    found = recorder(tmp_path, *PLAIN, other, displayTimeUnit="ms", otherData={"version": "1"})
    assert (found.recorder, found.recorder_version) == (None, None)


def test_other_recorders_of_the_same_layout_name_their_processes(tmp_path):
    def process(name):
        return {"ph": "M", "name": "process_name", "pid": 10, "args": {"name": name}}

    assert recorder(tmp_path, *PLAIN, process("/host:CPU")).recorder == "xprof"
    of_ascend = recorder(tmp_path, op("aten::mm", 1, 2), process("Ascend Hardware"))
    assert of_ascend.recorder == "torch_npu.profiler"


def test_the_version_is_that_of_the_file(tmp_path):
    found = recorder(tmp_path, *PLAIN, schemaVersion=1, torch_version="2.11.0")
    assert (found.recorder_version, found.producer) == ("2.11.0", "torch 2.11.0")


def periods(name):
    """Twenty periods of 2.5 ms, each with a hundred short operators that launch one kernel."""
    for i in range(20):
        begin = 2500 * i
        for j in range(100):
            at = begin + 24 * j
            yield op(name, at, 10)
            yield from launched(f"k{j % 7}", at + 2, at + 10, 8, 100 * i + j)


def test_a_trace_of_an_unknown_tool_is_never_corrected(tmp_path):
    """It said 2.50 ms in the trace, about 1.30 without the profiler."""
    text = json.dumps({"traceEvents": list(periods("multiply"))})
    trace = read(written(tmp_path, text))
    assert why_uncalibrated(trace) == "the file does not show what recorded it"
    steps = diagnose(trace).steps
    assert steps.unprofiled_ns_predicted is None
    assert steps.unprofiled_how == "not corrected: the file does not show what recorded it"


def test_the_same_of_pytorch_is_corrected(tmp_path):
    text = json.dumps({"traceEvents": list(periods("aten::mul"))})
    steps = diagnose(read(written(tmp_path, text))).steps
    assert steps.unprofiled_ns_predicted < steps.typical_ns
