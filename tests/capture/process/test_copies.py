"""Copies of a process: who trains or serves in one is recorded, workers of others are not."""

import os
import sys
from types import SimpleNamespace

import pytest

from pinchpoint.capture.process import copies
from pinchpoint.capture.samples import worker
from pinchpoint.inside.hooks import EAGER_OPTIMIZER_STEPPED, MODEL_CALLED


class Begun:
    """What stands for a program that puts its hooks on."""

    def __init__(self):
        self.stepped = []
        self.optimizer_stepped = self.stepped.append

    def finish(self):
        pass


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy that is watched: what was begun in it, and how to watch it again."""
    (tmp_path / "processes").mkdir()
    now, begun = [0], []
    monkeypatch.setattr(copies, "_watched_in", -1)
    monkeypatch.setattr(copies.time, "perf_counter_ns", lambda: now[0])
    for event in (EAGER_OPTIMIZER_STEPPED, MODEL_CALLED):
        monkeypatch.setattr(event, "listeners", [])

    def begin():
        begun.append(Begun())
        return begun[-1]

    def watch(*, recordable=True, again=True):
        copies._watched_in = -1 if again else copies._watched_in
        copies.watch(tmp_path, begin, recordable=recordable)

    return SimpleNamespace(begun=begun, watch=watch, now=now, folder=tmp_path / "processes")


def test_a_copy_that_trains_is_recorded_from_its_first_step(copy):
    copy.watch()
    assert not copy.begun
    EAGER_OPTIMIZER_STEPPED.tell("adam")
    EAGER_OPTIMIZER_STEPPED.tell("adam")
    assert [one.stepped for one in copy.begun] == [["adam"]]


def test_a_copy_of_a_copy_is_watched_once(copy):
    copy.watch()
    copy.watch(again=False)
    EAGER_OPTIMIZER_STEPPED.tell("adam")
    assert len(copy.begun) == 1


@pytest.mark.parametrize(
    ("calls_s", "recorded"), [([0, 1, 1.9], 0), ([0, 2.1], 0), ([0, 1, 2.1], 1)]
)
def test_a_copy_that_serves_is_recorded_once_it_has_for_a_while(copy, calls_s, recorded):
    copy.watch()
    for seconds in calls_s:
        copy.now[0] = int(1e9 * (5 + seconds))
        MODEL_CALLED.tell("model")
    assert len(copy.begun) == recorded


def test_a_worker_of_a_loader_that_calls_a_model_is_left_alone(copy, monkeypatch):
    of_torch = SimpleNamespace(get_worker_info=lambda: "a worker")
    monkeypatch.setitem(sys.modules, "torch.utils.data._utils.worker", of_torch)
    copy.watch()
    for seconds in range(9):
        copy.now[0] = int(1e9 * (5 + seconds))
        MODEL_CALLED.tell("model")
    assert not copy.begun
    assert not MODEL_CALLED.listeners


def test_a_run_has_room_for_some_copies_and_for_every_rank_of_a_job(copy, monkeypatch):
    def train():
        copy.watch()
        EAGER_OPTIMIZER_STEPPED.tell("adam")

    for _ in range(copies.MOST_COPIES + 3):
        train()
    assert len(copy.begun) == copies.MOST_COPIES
    monkeypatch.setattr(copies, "identity", lambda: SimpleNamespace(world_size=64))
    train()
    assert len(copy.begun) == copies.MOST_COPIES + 1


def test_what_cannot_be_recorded_is_noted_where_it_trains(copy):
    mark = copy.folder / copies.NOT_RECORDED_MARK
    copy.watch(recordable=False)
    MODEL_CALLED.tell("model")
    assert not mark.exists()
    EAGER_OPTIMIZER_STEPPED.tell("adam")
    assert mark.exists()
    assert not copy.begun


def test_looks_at_a_worker_end_where_it_is_recorded_itself(tmp_path, monkeypatch):
    (tmp_path / "samples").mkdir()
    looks = worker.WorkerSamples(tmp_path, None, "child", busy=True)
    looks._sampler.looks = 5
    looks._write()
    (left,) = (tmp_path / "samples").iterdir()
    assert left.name == f"child.{os.getpid()}.json"
    monkeypatch.setattr(worker, "_child", looks)
    worker.hand_over()
    looks.end()
    assert not list((tmp_path / "samples").iterdir())
