import pytest

from builders import TraceBuilder
from pinchpoint.analysis.host.frames import (
    Owner,
    PythonFrame,
    frame_of,
    frames_for_readers,
    in_recorder,
    owners,
)
from pinchpoint.trace import HostKind


@pytest.mark.parametrize(
    ("name", "frame"),
    [
        ("train.py(41): forward", PythonFrame("train.py", 41, "forward")),
        ("/home/me/a (b).py(7): <lambda>", PythonFrame("/home/me/a (b).py", 7, "<lambda>")),
        ("<frozen runpy>(286): run_path", PythonFrame("<frozen runpy>", 286, "run_path")),
        ("<built-in method item of Tensor object at 0x7f(3): x>", None),
        ("nn.Module: Linear_0", None),
        ("aten::mm", None),
        ("", None),
    ],
)
def test_a_frame_is_read_from_its_name(name, frame):
    assert frame_of(name) == frame


@pytest.mark.parametrize(
    ("owner", "file"),
    [
        (Owner.USER, "train.py"),
        (Owner.USER, "models/gpt.py"),
        (Owner.USER, "/workspace/project/train.py"),
        (Owner.USER, "C:\\work\\train.py"),
        (Owner.USER, "test.py"),
        (Owner.USER, "torch.py"),
        (Owner.LIBRARY, "transformers/models/llama/modeling_llama.py"),
        (Owner.LIBRARY, "/opt/venv/lib/python3.11/site-packages/mylib/model.py"),
        (Owner.FRAMEWORK, "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py"),
        (Owner.FRAMEWORK, "torch/nn/modules/linear.py"),
        (Owner.FRAMEWORK, "/usr/lib/python3.11/threading.py"),
        (Owner.FRAMEWORK, "threading.py"),
        (Owner.FRAMEWORK, "multiprocessing/queues.py"),
        (Owner.FRAMEWORK, "<frozen runpy>"),
        (Owner.FRAMEWORK, "/home/me/pinchpoint/src/pinchpoint/capture/samples/sampler.py"),
        (Owner.USER, "/home/me/pinchpoint/train.py"),
    ],
)
def test_the_path_says_whose_code_it_is(owner, file):
    assert PythonFrame(file, 1, "f").owner is owner


def test_only_python_rows_are_frames():
    b = TraceBuilder()
    b.python("train.py(1): step", 0, 100)
    b.python("torch/optim/adam.py(5): step", 10, 50)
    b.op("aten::mm", 20, 10)
    b.op("train.py(9): annotation", 40, 5, kind=HostKind.ANNOTATION)
    trace = b.trace()
    assert owners(trace).tolist() == [Owner.USER, Owner.FRAMEWORK, 0, 0]
    assert frames_for_readers(trace).tolist() == [True, False, False, False]
    assert owners(b.trace(host_ops=None)).tolist() == []


@pytest.mark.parametrize(
    ("frames", "records"),
    [
        (("heard", "numpy/lib/_arraysetops_impl.py(373): _unique1d", "train.py(4): known"), False),
        (("heard", "pinchpoint/capture/process/step_clock.py(82): edge", "train.py(9): f"), True),
        (("pinchpoint/capture/process/step_clock.py(82): edge", "train.py(9): f"), True),
        (("train.py(9): f",), False),
    ],
)
def test_what_a_look_finds_at_the_count_of_calls_is_the_call_that_it_is_told_of(frames, records):
    counter = "pinchpoint/capture/process/budget.py(205): heard"
    assert in_recorder([counter if f == "heard" else f for f in frames]) is records
    handing_on = "pinchpoint/capture/process/rare_calls.py(70): hands_on"
    assert in_recorder([handing_on if f == "heard" else f for f in frames]) is records
