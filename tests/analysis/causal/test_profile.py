"""What a step would be without a piece, and with it at its limit; microseconds."""

from pathlib import Path

import numpy as np
import pytest

import pinchpoint as pp
from builders import TraceBuilder
from pinchpoint.analysis.causal.limits import ADDS_PER_CLOCK
from pinchpoint.analysis.causal.pieces import Cut
from pinchpoint.analysis.causal.profile import causal, off_path
from pinchpoint.analysis.replay.least_durations import best_ns
from pinchpoint.analysis.replay.replayed_window import replayed_window
from pinchpoint.hardware import find_spec
from pinchpoint.trace import Device
from program import Program

STEPS = 6
H100 = find_spec("NVIDIA H100 80GB HBM3")
ROWS, WIDTH, TABLE = 200_000, 256, 1_000
ADDING = {
    "shapes": [[TABLE, WIDTH], [], [ROWS], [ROWS, WIDTH], []],
    "dtypes": ["float", "Scalar", "long int", "float", "Scalar"],
}
# Elements are added at half an add a clock and multiprocessor; moving them takes less.
LIMIT_US = ROWS * WIDTH / (ADDS_PER_CLOCK * H100.multiprocessors * H100.clock_hz) * 1e6


def training(adding_us=10_000, python_us=0, sync=True):
    """Rows added to a table, another kernel of 1 ms, and Python."""
    p = Program()
    for _ in p.steps(STEPS):
        with p.frame("model.py(7): pool"), p.row("aten::index_add_", **ADDING):
            p.kernel("indexFuncLargeIndex", adding_us)
        with p.frame("model.py(20): head"), p.row("aten::other"):
            p.kernel("other", 1_000)
        if sync:
            p.sync()
        if python_us:
            p.host("data.py(3): prepare", python_us)
    return p.trace()


def piece(trace, cut, name):
    (found,) = [one for one in causal(trace, cut.value).pieces if name in one.name]
    return found


def test_an_operator_that_dominates():
    found = piece(training(), Cut.OPERATOR, "index_add_")
    assert found.device_ns == 10_000_000
    assert found.limit_ns == pytest.approx(LIMIT_US * 1_000, rel=1e-3)
    assert found.base_ns == pytest.approx(11_000_000, rel=0.01)
    assert found.step_if_free_ns == pytest.approx(1_000_000, rel=0.05)
    assert found.step_at_limit_ns == pytest.approx(1_000_000 + LIMIT_US * 1_000, rel=0.05)
    assert found.step_without_host_ns == pytest.approx(11_000_000, rel=0.01)
    assert found.times_limit == pytest.approx(10_000 / LIMIT_US, rel=1e-3)


def test_an_operator_without_a_model_has_no_limit():
    found = piece(training(), Cut.OPERATOR, "aten::other")
    assert (found.limit_ns, found.times_limit, found.needed_bytes) == (None, None, None)
    assert found.step_at_limit_ns == found.base_ns


@pytest.mark.parametrize(
    ("cut", "name"),
    [
        (Cut.KERNEL, "indexFunc"),
        (Cut.LINE, "model.py(7): pool"),
        (Cut.FUNCTION, "model.py(7): pool"),
    ],
)
def test_the_same_work_in_other_cuts(cut, name):
    trace = training()
    found, operator = piece(trace, cut, name), piece(trace, Cut.OPERATOR, "index_add_")
    assert found.device_ns == operator.device_ns
    assert found.step_if_free_ns == pytest.approx(operator.step_if_free_ns, rel=0.02)


def test_python_on_a_step_that_the_host_bounds():
    found = piece(training(python_us=5_000), Cut.LINE, "prepare")
    assert (found.device_ns, found.limit_ns) == (0, None)
    assert found.host_ns == pytest.approx(5_000_000, rel=0.01)
    assert found.base_ns - found.step_without_host_ns == pytest.approx(5_000_000, rel=0.02)
    assert found.hidden_ns == pytest.approx(0, abs=100_000)


def test_python_behind_the_device_is_hidden():
    found = piece(training(python_us=5_000, sync=False), Cut.LINE, "prepare")
    assert found.step_if_free_ns == pytest.approx(found.base_ns, rel=0.01)
    assert found.hidden_ns == pytest.approx(5_000_000, rel=0.02)


def test_a_wait_is_removed_with_what_it_waits_for():
    found = piece(training(python_us=5_000), Cut.WAIT, "Synchronize")
    # Python of 5 ms fits behind 11 ms on the device once nothing waits.
    assert found.base_ns == pytest.approx(16_000_000, rel=0.01)
    assert found.step_if_free_ns == pytest.approx(11_000_000, rel=0.02)


def test_many_launches_of_one_call_are_one_at_the_limit():
    matrices = {"shapes": [[512, 3, 3], []], "dtypes": ["float", ""]}
    p = Program()
    for _ in p.steps(STEPS):
        with p.row("aten::linalg_qr", **matrices):
            for _ in range(200):
                p.kernel("geqr2", 10)
        p.kernel("other", 1_000)
        p.sync()
    found = piece(p.trace(), Cut.OPERATOR, "linalg_qr")
    assert found.launches_per_call == 200
    assert found.limit_ns == 10_000  # the start of a kernel
    assert found.base_ns == pytest.approx(3_000_000, rel=0.02)
    assert found.step_at_limit_ns == pytest.approx(1_010_000, rel=0.05)


def test_a_recording_without_device_work_says_why():
    p = Program()
    for _ in p.steps(STEPS):
        p.host("train.py(1): work", 1_000)
    found = causal(p.trace())
    assert found.pieces == ()
    assert "host and device together" in found.why_not


def test_a_device_that_is_not_known_has_no_limits():
    p = Program()
    p.builder.devices[:] = [Device(0, "unheard of")]
    for _ in p.steps(STEPS):
        with p.row("aten::index_add_", **ADDING):
            p.kernel("indexFuncLargeIndex", 1_000)
        p.sync()
    found = piece(p.trace(), Cut.OPERATOR, "index_add_")
    assert found.limit_ns is None
    assert found.step_at_limit_ns == found.base_ns


DATA = Path(__file__).parents[2] / "data"
RECORDINGS = sorted([*DATA.glob("labelled/*.json.gz"), *DATA.glob("kineto/*.json.gz")])


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_free_is_no_longer_than_at_the_limit_and_nothing_below_what_stays(path):
    trace = pp.load(path)
    found = causal(trace)
    for one in found.pieces:
        assert 0 <= one.step_if_free_ns <= one.step_at_limit_ns <= one.base_ns, one
        assert one.step_if_free_ns <= one.step_without_host_ns <= one.base_ns, one
        assert one.limit_ns is None or one.limit_ns <= (one.device_ns or one.host_ns)
        assert one.hidden_ns <= one.occupied_ns
    window = replayed_window(trace)
    if window is None:
        return
    # Host time alone leaves all device work: no step without it is shorter than that.
    graph, counted = window.graph, window.counted
    inside = counted[graph.node_step[graph.op_node]]
    least = best_ns(trace)[graph.op_rows][inside]
    work = np.bincount(graph.op_stream[inside], least, 1).max() / counted.sum()
    for one in found.pieces:
        assert one.step_without_host_ns >= min(work, window.step_ns, one.base_ns) - 1


def test_operators_are_those_of_the_whole_profile():
    trace = training()
    mine = {(p.cut, p.name): p.step_if_free_ns for p in off_path(trace, Cut.OPERATOR).pieces}
    whole = {(p.cut, p.name): p.step_if_free_ns for p in causal(trace).pieces}
    assert mine.items() <= whole.items()


def test_a_cut_that_there_is_not():
    with pytest.raises(ValueError, match="weekday"):
        causal(training(), "weekday")


def test_what_runs_side_by_side_on_two_streams_is_one_time_of_the_device():
    b = TraceBuilder()
    for number in range(STEPS):
        at = number * 12_000_000
        b.step(number, at, 12_000_000)
        b.op("aten::_cudnn_rnn", at + 1_000, 100_000)
        for stream in (7, 8):
            call = at + 2_000 + 10_000 * (stream - 7)
            b.launch(call, 5_000, "gemm", at + 1_000_000, 10_000_000, stream=stream)
    found = piece(b.trace(), Cut.OPERATOR, "_cudnn_rnn")
    assert found.device_ns == 10_000_000
