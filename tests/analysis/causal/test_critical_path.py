"""What the end of a step waits for; microseconds."""

from pathlib import Path

import numpy as np
import pytest

import pinchpoint as pp
from pinchpoint.analysis.causal.critical_path import CriticalPath, Link, critical_path
from pinchpoint.analysis.causal.path_of_step import _most, path_of_step
from pinchpoint.analysis.causal.profile import causal
from pinchpoint.analysis.replay.replayed_window import replayed_window
from program import LAUNCH_US, START_US, Program

DATA = Path(__file__).parents[2] / "data"
RECORDINGS = sorted([*DATA.glob("labelled/*.json.gz"), *DATA.glob("kineto/*.json.gz")])


def program(python_us=300, kernel_us=500):
    """Python, a kernel that is waited for, and one beside the Python of the next step."""
    p = Program()
    for _ in p.steps(6):
        p.host("data.py(3): prepare", python_us)
        with p.row("aten::mm"):
            p.kernel("gemm", kernel_us)
        p.sync()
    return p.trace()


def test_python_and_device_take_turns():
    found = path_of_step(program())
    assert found.ns_per_step[Link.DEVICE] == pytest.approx(500_000, rel=0.01)
    assert found.ns_per_step[Link.HOST] == pytest.approx(
        300_000, rel=0.06
    )  # recording it cost some
    assert found.ns_per_step[Link.START] == pytest.approx(1_000 * (LAUNCH_US + START_US), rel=0.5)
    names = {stretch.name for stretch in found.stretches}
    assert {"aten::mm", "data.py(3): prepare"} <= names
    assert {one.name: one.critical_ns for one in causal(program(), "operator").pieces} == {
        "aten::mm": pytest.approx(500_000, rel=0.02)
    }


def test_a_hidden_kernel_is_not_on_the_path():
    p = Program()
    for _ in p.steps(6):
        p.kernel("beside", 400, stream=20)
        p.kernel("long", 900)
        p.sync("cudaStreamSynchronize")
    found = {one.name: one.critical_ns for one in causal(p.trace(), "kernel").pieces}
    assert found["beside"] == LAUNCH_US * 1_000  # its launch alone
    assert found["long"] == pytest.approx(900_000, rel=0.01)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_the_path_has_no_holes(path):
    trace = pp.load(path)
    window, found = replayed_window(trace), critical_path(trace)
    if window is None:
        pytest.skip("nothing to replay")
    assert (found.start_ns[1:] == found.end_ns[:-1]).all()
    assert found.end_ns[-1] == found.step_ends_ns[-1]
    if found.start_ns[0] <= found.step_ends_ns[window.counted.argmax()]:
        assert found.of_links(window).sum() == pytest.approx(window.step_ns, rel=0.001)


def test_after_the_end_of_a_path_its_last_stretch_counts():
    """Damaged times can put a step's end behind the path."""
    ends = np.array([10, 20])
    none, code = np.zeros(2, np.intp), np.full(2, Link.DEVICE, np.uint8)
    path = CriticalPath(ends - 10, ends, code, none, np.array([0, 40]), 1.0)
    assert _most(path, np.array([3, 7]), 30, 40) == _most(path, np.array([3, 7]), 12, 18)
