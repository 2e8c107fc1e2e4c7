"""When what comes round is looked for, and when it counts as lost."""

import sys
from types import SimpleNamespace

import pytest

from pinchpoint.capture.process import unmarked
from pinchpoint.capture.process.ranks import Identity
from pinchpoint.capture.process.session import CaptureSession
from pinchpoint.capture.process.unmarked import look_for_loops
from pinchpoint.capture.settings import Settings


class Loops:
    """That only say whether they were looked for."""

    def __init__(self):
        self.looks, self.chosen, self.soon, self.was_lost = 0, False, True, False

    def look(self, stack):
        self.looks += 1

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
