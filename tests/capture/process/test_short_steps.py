"""Steps so short that hearing of each would cost more than they take: counted, timed together."""

import sys
from types import SimpleNamespace

import pytest

from pinchpoint.capture.process import session as session_module
from pinchpoint.capture.process.ranks import Identity
from pinchpoint.capture.process.session import (
    ASKED_AGAIN_NS,
    ASKED_AT_FIRST,
    CaptureSession,
    Optimizers,
    WithParameters,
)
from pinchpoint.capture.process.stage import Stage
from pinchpoint.capture.process.step_clock import MOST_TOGETHER, StepClock
from pinchpoint.capture.samples.far_steps import FarSteps
from pinchpoint.capture.samples.parts import COUNTING_NS, _Blocks
from pinchpoint.capture.settings import Settings

US, MS = 1_000, 1_000_000


@pytest.fixture(autouse=True)
def _no_optimizer(monkeypatch):
    """Whatever other tests have made in this process."""
    monkeypatch.delitem(sys.modules, "torch.optim.optimizer", raising=False)


class Program:
    """Steps of given microseconds; the clock is told of several where it asks for that."""

    def __init__(self):
        self.now, self.heard = 0, []
        self.clock = StepClock(lambda: self.now)
        self.clock.edge()

    def step(self, us, times=1, *, short=True):
        for _ in range(times):
            self.now += us * US
            if self.clock.counts():
                continue
            self.clock.edge()
            self.clock.spare(short=short)
            self.heard.append(self.clock.edges)


@pytest.fixture
def program():
    return Program()


def test_each_step_is_told_of_unless_they_are_short(program):
    program.step(1000, 50)
    assert program.heard == list(range(2, 52))
    program.step(10, 50, short=False)
    assert len(program.heard) == 100


def test_short_steps_are_told_of_together_and_none_is_lost(program):
    program.step(100, 1000)
    assert 90 < len(program.heard) < 110  # ten at once: 20 µs are 2 % of their millisecond
    assert program.clock.edges == 1001
    known = len(program.clock.interval_ns)
    assert 1000 - MOST_TOGETHER < known <= 1000
    assert set(program.clock.interval_ns) == {100 * US}


def test_steps_that_become_long_are_told_of_one_by_one_again(program):
    program.step(100, 100)
    program.step(5000, 40)
    assert program.heard[-25:] == list(range(117, 142))
    assert max(program.clock.interval_ns) <= 50 * MS


def test_a_stall_among_short_steps_is_one_step(program):
    program.step(100, 500)
    program.step(30_000)
    program.step(100, 500)
    far = [ns for ns in program.clock.interval_ns if ns > MS]
    assert far == [30 * MS]
    assert set(program.clock.interval_ns) == {100 * US, 30 * MS}


def test_what_is_disturbed_is_all_that_was_told_of_at_once(program):
    program.step(100, 500)
    program.clock.disturb()
    program.step(100, 500)
    assert 1 < len(program.clock.disturbed) <= 12


def test_steps_that_were_only_counted_count_in_the_mean_of_the_run(program):
    far = FarSteps(SimpleNamespace(), SimpleNamespace(take=lambda: (0, 0, ())))
    far.count = 100  # judged by then
    far.typical_ns = 100 * US
    far._sampler = SimpleNamespace(recent_looks=0)
    program.step(100, 20, short=False)
    far._known = len(program.clock.interval_ns) - 1
    far._parts._parts.append(SimpleNamespace(steps=0))
    far._parts._each = 1_000_000
    begun = far._known
    for _ in range(200):
        program.step(100)
        if len(program.clock.interval_ns) - 1 > far._known:
            far.edge(program.clock)
    heard = far._known - begun
    assert (far.count, far.total_ns) == (100 + heard, heard * 100 * US)
    assert far._parts._parts[0].steps == heard


def a_model(parameters=1):
    """A model whose parameters were asked for so often."""

    class Model:
        asked = 0

        def parameters(self):
            Model.asked += 1
            return iter(range(parameters))

    return Model()


def make(folder, clock, world_size=1):
    identity = Identity(0, world_size, 0, "host", 1, world_size > 1)
    made = CaptureSession(Settings(str(folder)), identity, lambda kind: None, lambda session: None)
    made.clock = StepClock(clock)
    return made


def call_until_done(tmp_path, world_size=1):
    (tmp_path / "processes").mkdir()
    now = [0]
    session, model = make(tmp_path, lambda: now[0], world_size), a_model()

    def call(times):
        counted = 0
        for _ in range(times):
            now[0] += 100 * US
            if session.counts(model):
                counted += 1
            else:
                session.model_called(model)
        return counted

    call(300)
    assert session.stage is Stage.DONE
    return session, call


def test_short_calls_of_a_model_are_only_counted_once_all_is_recorded(tmp_path):
    session, call = call_until_done(tmp_path)
    before = session.clock.edges
    assert 880 < call(1000) < 920
    assert session.clock.edges == before + 1000


def test_ranks_of_a_job_hear_of_each_step(tmp_path):
    _, call = call_until_done(tmp_path, world_size=2)
    assert call(500) == 0


def test_while_single_steps_are_looked_at_each_is_heard_of(tmp_path):
    session, call = call_until_done(tmp_path)
    look = SimpleNamespace(due=True, step_ended=lambda: None, step_begins=lambda: None)
    session.looks.join(look)
    call(300)
    assert call(500) == 0
    session.looks.leave(look)
    assert call(500) > 400


def test_calls_of_another_model_or_before_all_is_recorded_are_not_counted(tmp_path):
    session, call = call_until_done(tmp_path)
    call(100)
    assert not any(session.counts(a_model()) for _ in range(5))
    session.stage = Stage.WAITING
    session.step("module")
    assert not session.counts(a_model())


def test_an_optimizer_is_looked_for_at_first_and_then_now_and_again(monkeypatch):
    asked, there, now = [], [False], [0]

    def exists():
        asked.append(now[0])
        return there[0]

    monkeypatch.setattr(session_module, "optimizer_exists", exists)
    optimizers = Optimizers(lambda: now[0])
    for _ in range(ASKED_AT_FIRST + 500):
        assert not optimizers.exist()
    assert len(asked) == ASKED_AT_FIRST
    there[0] = True
    assert not optimizers.exist()
    now[0] += ASKED_AGAIN_NS
    assert optimizers.exist()
    assert optimizers.exist()
    assert len(asked) == ASKED_AT_FIRST + 1


def test_whether_a_model_has_parameters_is_asked_of_each_once():
    known, model, loss = WithParameters(), a_model(), a_model(parameters=0)
    assert [known.has(model) for _ in range(5)] == [True] * 5
    assert [known.has(loss) for _ in range(5)] == [False] * 5
    assert (model.asked, loss.asked) == (1, 1)


def test_blocks_are_counted_as_long_as_that_is_cheap(monkeypatch):
    now = [0]

    def slow():
        now[0] += COUNTING_NS // 2
        return 7

    monkeypatch.setattr("pinchpoint.capture.samples.parts.time.perf_counter_ns", lambda: now[0])
    monkeypatch.setattr("pinchpoint.capture.samples.parts.sys.getallocatedblocks", slow)
    blocks = _Blocks()
    assert [blocks.count() for _ in range(4)] == [7, 7, None, None]
    now[0] += 20_000_000_000
    assert blocks.count() == 7
