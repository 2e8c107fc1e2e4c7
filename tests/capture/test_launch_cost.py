"""What a launch costs, on a clock and a torch that only count."""

import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from pinchpoint.capture.windows import launches
from pinchpoint.capture.windows.launches import BATCHES, LAUNCHES, LaunchCost, launch_ns
from pinchpoint.capture.windows.torch import USED, TorchWindow

US = 1_000


class Clock:
    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now


class Value:
    """Each launch takes what the plan says; the last figure goes on."""

    def __init__(self, clock, plan):
        self._clock, self._plan, self.launches = clock, list(plan), 0

    def add_(self, _):
        self.launches += 1
        self._clock.now += self._plan.pop(0) if len(self._plan) > 1 else self._plan[0]


def of_torch(value, **other):
    found = SimpleNamespace(
        cuda=SimpleNamespace(
            is_initialized=lambda: other.get("cuda", True),
            is_current_stream_capturing=lambda: other.get("capturing", False),
            mem_get_info=lambda: (other.get("free", 1 << 30), 1 << 33),
            current_device=lambda: 0,
        ),
        version=SimpleNamespace(cuda=other.get("version", "13.0")),
        autograd=SimpleNamespace(_profiler_enabled=lambda: other.get("profiled", False)),
        compiler=SimpleNamespace(is_compiling=lambda: other.get("compiling", False)),
        _C=SimpleNamespace(
            _len_torch_dispatch_stack=lambda: other.get("modes", 0),
            _functorch=SimpleNamespace(peek_interpreter_stack=lambda: other.get("vmap")),
            DisableTorchFunction=nullcontext,
        ),
        inference_mode=nullcontext,
        float32="float32",
        device=lambda *of: of,
    )
    found.zeros = lambda *_, **__: value
    return found


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def measured(clock, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._guards", raising=False)

    def measure(*plan_ns, **other):
        value = Value(clock, plan_ns)
        monkeypatch.setitem(sys.modules, "torch", of_torch(value, **other))
        return launch_ns(clock), value.launches

    return measure


def test_the_first_launch_is_not_counted_and_the_least_batch_is(measured):
    first, disturbed, quiet = [9_000_000], [40 * US] * LAUNCHES, [8_300] * LAUNCHES
    found, count = measured(*first, *disturbed, *quiet, 9 * US)
    assert found == (8_300, None)
    assert count == 1 + BATCHES * LAUNCHES


def test_a_full_queue_ends_the_measurement_and_gives_no_figure(measured):
    found, count = measured(2_000 * US)
    assert found == (None, "launches waited for the device")
    assert count == 1 + LAUNCHES


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"cuda": False}, "no CUDA device in use by torch"),
        ({"version": None}, "no CUDA device in use by torch"),
        ({"capturing": True}, "a CUDA graph was being captured"),
        ({"profiled": True}, "another profiler was recording"),
        ({"compiling": True}, "a compilation was under way"),
        ({"modes": 1}, "operators were being rewritten by the program"),
        ({"vmap": object()}, "operators were being rewritten by the program"),
        ({"free": 1 << 20}, "the memory of the device was full"),
    ],
)
def test_where_a_launch_could_disturb_the_program_there_is_none(measured, other, why):
    assert measured(8_300, **other) == ((None, why), 0)


def test_without_torch_there_is_no_figure(monkeypatch, clock):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert launch_ns(clock) == (None, "no CUDA device in use by torch")


def test_a_failure_is_silent(measured):
    def fails():
        raise RuntimeError("CUDA error: out of memory\nmore")

    found, _ = measured(8_300, vmap=None, free=1 << 30)
    assert found[0] == 8_300
    sys.modules["torch"].inference_mode = fails
    assert launch_ns(Clock()) == (None, "RuntimeError: CUDA error: out of memory")


class Budget:
    def __init__(self):
        self.acts = 0

    def stalls(self, act):
        self.acts += 1
        act()


class Window(TorchWindow):
    def __init__(self):
        self.primed = 0

    def prime(self):
        self.primed += 1


@pytest.fixture
def figures(monkeypatch):
    """What launches cost, one figure after the other."""
    plan = []
    monkeypatch.setattr(launches, "launch_ns", lambda _clock: plan.pop(0))
    monkeypatch.setattr(launches, "USED", type(USED)())
    return plan


STEPS = SimpleNamespace(interval_ns=[10] * 7)


def test_before_the_first_window_and_the_least_after_any(figures):
    figures += [(8_300, None), (14_900, None), (14_700, None)]
    cost, window, budget = LaunchCost(), Window(), Budget()
    cost.prime(window, STEPS, budget)
    cost.after(budget)
    cost.prime(window, STEPS, budget)
    cost.after(budget)
    assert window.primed == 2
    assert budget.acts == 5  # all of it is counted
    assert cost.note([5, 6, 7]) == {
        "before": 8_300, "after": 14_700, "why": None, "unloaded_steps": 2
    }  # fmt: skip


def test_unknown_has_a_reason(figures):
    budget = Budget()
    assert LaunchCost().note([])["why"] == "no recording began between two steps"
    figures += [(8_300, None), (None, "launches waited for the device")]
    cost = LaunchCost()
    cost.prime(Window(), STEPS, budget)
    assert cost.note([])["why"] == "no recording ended with a step"
    cost.after(budget)
    assert cost.note([])["why"] == "launches waited for the device"
    assert cost.note([])["after"] is None


def test_once_the_profiler_has_run_there_is_no_before(figures):
    launches.USED.set()
    cost, budget = LaunchCost(), Budget()
    cost.prime(Window(), STEPS, budget)
    cost.after(budget)
    assert cost.note([1]) == {
        "before": None, "after": None, "why": "the profiler had run before", "unloaded_steps": 0
    }  # fmt: skip


def test_a_recording_by_others_is_none_of_torch(figures):
    window = SimpleNamespace(prime=lambda: None)
    cost = LaunchCost()
    cost.prime(window, STEPS, Budget())
    assert cost.note([])["why"] == "not a recording by torch"
