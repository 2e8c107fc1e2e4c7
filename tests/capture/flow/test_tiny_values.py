"""Operators on numbers next to zero. What they take is told by a clock that the test moves on."""

import pytest

from pinchpoint.capture.flow import tiny_values
from pinchpoint.capture.flow.work import STEPS, RepeatedWork

pytestmark = pytest.mark.torch
QUICK_NS, SLOW_NS = 1_000, 8_000


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global torch  # not when tests are collected: its import takes seconds in every process
    torch = pytest.importorskip("torch", reason="watches operations of torch")


class Clock:
    """Time that only trials take: more of it with numbers below the smallest normal one."""

    def __init__(self, slow_ns):
        self.now, self.slow_ns = 0, slow_ns

    def thread_time_ns(self):
        return self.now

    def perf_counter_ns(self):
        return self.now


@pytest.fixture
def tiny(monkeypatch):
    """Notes of operators that are slow by their values: ``tiny(step, slow_ns)``."""

    def look(step, slow_ns=SLOW_NS):
        clock = Clock(slow_ns)
        tried = tiny_values.TinyValues._try

        def with_clock(self, func, args, kwargs, ratio):
            def timed(*mine, **named):
                answer = func(*mine, **named)
                small = [(t.abs() < 1e-37) & (t != 0) for t in mine if hasattr(t, "abs")]
                clock.now += slow_ns if any(s.any() for s in small) else QUICK_NS
                return answer

            return tried(self, timed, args, kwargs, ratio)

        monkeypatch.setattr(tiny_values, "time", clock)
        monkeypatch.setattr(tiny_values.TinyValues, "_try", with_clock)
        work = RepeatedWork()
        work.begin()
        for number in range(STEPS):
            step(number)
            notes = work.step_ends()
        assert not work.why_not
        return [note for note in notes if note["kind"] == "tiny"]

    return look


def decaying(value):
    state = torch.full((8, 16), 1.0)
    state[:4] = value

    def step(number):
        state.mul_(0.9)
        (state @ torch.randn(16, 4)).sum().item()

    return state, step


def test_a_state_that_decayed_into_denormal_numbers_is_told_with_what_zeros_would_take(tiny):
    _, step = decaying(1e-39)
    notes = {note["operations"][0]["name"]: note for note in tiny(step)}
    assert notes.keys() == {"aten::mul_", "aten::mm", "aten::sum"}
    note = notes["aten::mul_"]
    assert note["places"][0][2] == "step"
    assert note["read_ratio"] == 0.5
    assert note["left_ratio"] == QUICK_NS / SLOW_NS
    assert note["tried_ns"] == SLOW_NS


def test_a_trial_leaves_the_program_its_values(tiny):
    state, step = decaying(1e-39)
    tiny(step)
    expected = 1.0
    for _ in range(STEPS):
        expected *= 0.9
    assert state[5, 0].item() == pytest.approx(expected)
    assert state[0, 0].item() == pytest.approx(1e-39 * expected, rel=1e-4)


@pytest.mark.parametrize("value", [0.0, 1e-20], ids=["zeros", "small, but not that small"])
def test_other_numbers_are_not_tried(tiny, value):
    assert tiny(decaying(value)[1]) == []


def test_where_zeros_are_as_slow_the_numbers_are_no_cause(tiny):
    assert tiny(decaying(1e-39)[1], slow_ns=QUICK_NS * 1.2) == []


def test_one_denormal_number_in_many_is_none(tiny):
    state = torch.ones(64, 64)
    state[0, 0] = 1e-39

    def step(number):
        (state * 0.5).sum().item()

    assert tiny(step) == []
