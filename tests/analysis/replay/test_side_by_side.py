"""Kernels on several streams of one device; nanoseconds that can be added up in one's head."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import TraceBuilder
from pinchpoint.analysis.causal.pieces import Cut
from pinchpoint.analysis.causal.profile import off_path
from pinchpoint.analysis.replay import MoveToOwnStream
from pinchpoint.analysis.replay.least_durations import best_ns
from pinchpoint.analysis.replay.predict import what_if
from pinchpoint.analysis.replay.side_by_side import shared_ns
from pinchpoint.trace import Device, DeviceKind, MemoryKind
from pinchpoint.trace.intervals import Intervals, flatten
from program import Program

UNITS = 100


def device(*kernels):
    """Kernels by start, duration, stream and blocks; None: not known."""
    built = TraceBuilder(devices=(Device(0, "NVIDIA", multiprocessors=UNITS),))
    for start, took, stream, blocks in kernels:
        grid = {} if blocks is None else {"grid": f"[{blocks},1,1]"}
        built.add("device_ops", start_ns=start, duration_ns=took, name="k", device=0,
                  kind=DeviceKind.KERNEL, stream=stream, **grid)  # fmt: skip
    return built.trace(api_calls=None)


@pytest.mark.parametrize(
    ("kernels", "left", "least"),
    [
        pytest.param([(0, 10, 1, 100), (10, 10, 2, 200)], [1, 1], 20, id="in turns"),
        pytest.param([(0, 10, 1, 100), (0, 10, 2, 100)], [1, 1], 10, id="at once"),
        pytest.param([(0, 10, 1, 100), (5, 10, 2, 100)], [1, 1], 15, id="partly at once"),
        pytest.param([(0, 10, 1, 25), (10, 10, 2, 25)], [1, 1], 5, id="with room beside them"),
        pytest.param([(0, 10, 1, None), (10, 10, 2, None)], [1, 1], 20, id="nothing is known"),
        pytest.param([(0, 10, 1, 100), (10, 10, 2, 100)], [1, 0.5], 15, id="one is faster"),
        pytest.param([(0, 10, 1, 100), (0, 10, 2, 100)], [1, 0], 10, id="one of two is gone"),
        pytest.param([(0, 10, 1, 100), (0, 10, 2, 100)], [0.5, 0.5], 10, id="both held up"),
    ],
)
def test_what_kernels_take_of_a_device(kernels, left, least):
    assert shared_ns(device(*kernels), np.array(left, np.float64)) == pytest.approx(least)


def test_within_windows():
    trace = device((0, 10, 1, 100), (10, 10, 2, 100))
    windows = Intervals(np.array([5]), np.array([12]))
    assert shared_ns(trace, np.ones(2), windows) == 7


def test_copies_and_collectives_are_no_kernels():
    built = TraceBuilder()
    for kind in (DeviceKind.COPY, DeviceKind.COLLECTIVE):
        built.add("device_ops", start_ns=0, duration_ns=9, name="c", device=0, stream=1, kind=kind)
    assert shared_ns(built.trace(api_calls=None), np.ones(2)) == 0


kernel = st.tuples(
    st.integers(0, 200),
    st.integers(1, 50),
    st.integers(1, 4),
    st.sampled_from([None, 10, 100, 400]),
)


@given(st.lists(kernel, min_size=1, max_size=12), st.data())
def test_never_more_than_the_device_was_at_work_nor_than_what_is_left(kernels, data):
    trace = device(*kernels)
    ops = trace.device_ops
    left = np.array([data.draw(st.floats(0, 1)) for _ in kernels])
    least, whole = shared_ns(trace, left), shared_ns(trace, np.ones(len(left)))
    assert -1e-6 <= least <= whole + 1e-6
    assert whole <= flatten(ops["start_ns"], ops.end_ns).total + 1e-6
    assert least <= float((left * ops["duration_ns"]).sum()) + 1e-6


def taking_turns(streams=8, **more):
    """Kernels that have the device, each on a stream of its own, one launched as another ends."""
    p = Program()
    for _ in p.steps(6):
        for stream in range(streams):
            with p.frame("train.py(9): forward"):
                p.busy(110)
                p.kernel(f"part {stream}", 100, stream=stream + 20, **more)
        p.copy(1 << 20, 100, MemoryKind.PINNED, MemoryKind.DEVICE)
        p.sync()
    return p.trace()


@pytest.mark.parametrize("grid", ["[1,1,1]", "[500,1,1]"], ids=["with room beside", "full"])
def test_host_time_is_worth_no_more_than_the_device_is_idle(grid):
    """800 µs of kernels in a step, of which no stream has more than 100: what waits for what is not
    recorded, and host time alone changes none of it."""
    for piece in off_path(taking_turns(grid=grid), Cut.FUNCTION).pieces:
        assert piece.step_without_host_ns >= 800_000


def test_a_copy_beside_them_is_worth_no_more_than_itself():
    trace = taking_turns()
    copies = np.flatnonzero(trace.device_ops["kind"] == DeviceKind.COPY)
    assert what_if(trace, [MoveToOwnStream(copies)]).bound_ns == 0.97 * 800_000  # of other clocks


def test_where_neither_grid_nor_call_is_known_a_name_is_no_measure_of_work():
    trace = device((0, 10, 1, None), (10, 30, 1, None), (40, 10, 1, 5), (50, 20, 1, 5))
    assert best_ns(trace).tolist() == [10, 30, 10, 10]
