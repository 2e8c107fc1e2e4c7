"""When what comes round is looked for, and when it counts as lost."""

import sys
from types import SimpleNamespace

import pytest

from pinchpoint.capture.process import unmarked
from pinchpoint.capture.process.ranks import Identity
from pinchpoint.capture.process.session import CaptureSession
from pinchpoint.capture.process.stage import Stage
from pinchpoint.capture.process.unmarked import look_for_loops, rounds_were_all
from pinchpoint.capture.settings import Settings


class Loops:
    """That only say whether they were looked for."""

    def __init__(self):
        self.looks, self.chosen, self.soon, self.was_lost = 0, False, True, False

    def look(self, stack, least_ns=0):
        self.looks, self.least_ns = self.looks + 1, least_ns

    def lost(self):
        self.chosen, self.was_lost = False, True


def make(tmp_path, world_size=1, **settings):
    session = CaptureSession(
        Settings(str(tmp_path), **settings),
        Identity(0, world_size, 0, "host", 1, False),
        lambda kind: None,
        lambda session: None,
    )
    session.loops = Loops()
    return session


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.setattr(unmarked, "optimizer_exists", lambda: False)
    monkeypatch.setattr(unmarked, "jax_works", lambda: False)


def test_it_is_looked_for_while_nothing_marks_steps(tmp_path):
    session = make(tmp_path)
    assert look_for_loops(session, works=True)
    assert session.loops.looks == 1


@pytest.mark.parametrize("why", ["marks", "batches", "optimizer", "jax", "job", "time", "hooks"])
def test_it_is_not_where_others_say_what_a_step_is(tmp_path, monkeypatch, why):
    settings = {"time": {"after_s": 3.0}, "hooks": {"tool": "none"}, "job": {"world_size": 2}}
    session = make(tmp_path, **settings.get(why, {}))
    session.steps_by = "module" if why == "marks" else None
    session._loader.fetches = 2 * (why == "batches")
    monkeypatch.setattr(unmarked, "optimizer_exists", lambda: why == "optimizer")
    monkeypatch.setattr(unmarked, "jax_works", lambda: why == "jax")
    assert not look_for_loops(session, works=True)
    assert session.loops.looks == 0


@pytest.mark.parametrize(("imported", "looks"), [(False, 1), (True, 0)])
def test_a_program_without_torch_has_come_to_its_work(tmp_path, monkeypatch, imported, looks):
    """One that has torch, and not used its device yet, prepares."""
    for name in ("torch", "jax"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    if imported:
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    session = make(tmp_path)
    look_for_loops(session, works=False)
    assert session.loops.looks == looks


@pytest.mark.parametrize(("silent", "lost"), [(True, True), (False, False)])
def test_a_loop_that_comes_no_more_is_lost(tmp_path, monkeypatch, silent, lost):
    monkeypatch.setattr(unmarked, "stopped", lambda clock, least_s: silent)
    session = make(tmp_path)
    session.loops.chosen = True
    session.step("loop")
    look_for_loops(session, works=True)
    assert (session.loops.was_lost, session.loops.looks) == (lost, lost)


def test_one_whose_next_turn_is_overdue_is_lost(tmp_path):
    session = make(tmp_path)
    session.loops.chosen = True
    look_for_loops(session, works=True)
    assert not session.loops.was_lost
    session.loops.soon = False
    look_for_loops(session, works=True)
    assert session.loops.was_lost


@pytest.fixture
def done(tmp_path, monkeypatch):
    """A session whose rounds of some seconds were recorded, and have come no more since."""
    monkeypatch.setattr(unmarked, "stopped", lambda clock, least_s: True)
    session = make(tmp_path)
    session.loops.chosen, session.loops.soon = True, False
    session.loops.over = session.loops.changed = False
    session.step("loop")
    session.stage = Stage.DONE
    forgotten = []
    monkeypatch.setattr(session, "forget_rounds", lambda: forgotten.append(True))
    session.forgotten = forgotten
    return session


def test_rounds_that_have_ended_may_have_prepared_others(done):
    assert not rounds_were_all(done)
    assert (done.loops.was_lost, done.loops.looks) == (True, 1)
    assert not done.forgotten  # not yet


def test_what_is_known_by_no_rounds_for_long_is_recorded_by_time(done, monkeypatch):
    monkeypatch.setattr(unmarked, "STALLED_S", 0.0)
    done.clock.interval_ns.append(5)
    assert not rounds_were_all(done)
    assert done.forgotten


@pytest.mark.parametrize("why", ["marked", "over", "ended"])
def test_nothing_is_left_to_watch_for(done, why):
    done.steps_by = "module" if why == "marked" else "loop"
    done.loops.over, done.ended = why == "over", why == "ended"
    assert rounds_were_all(done)
    assert done.loops.looks == 0


def test_others_have_to_go_on_for_half_as_long(done):
    done.clock.first_ns, done.clock._last_ns = 0, 30_000_000_000
    rounds_were_all(done)
    assert done.loops.least_ns == 15_000_000_000
