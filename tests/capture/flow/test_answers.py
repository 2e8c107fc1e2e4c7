"""What ranks note of their largest operations, and what of it they have in common."""

import json

import pytest

from pinchpoint.capture.flow import work
from pinchpoint.capture.flow.work import STEPS, RepeatedWork
from pinchpoint.importers.run_folder.values import values_beside
from pinchpoint.run_folder.layout import VALUES_SCHEMA

pytestmark = pytest.mark.torch
SIDE = 512  # of matrices of 1 MiB


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global torch  # not when tests are collected: its import takes seconds in every process
    torch = pytest.importorskip("torch", reason="watches operations of torch")
    torch.set_num_threads(1)


@pytest.fixture
def noted(monkeypatch):
    """Notes of a rank whose steps compute something: ``noted(step)``."""
    monkeypatch.setattr(work, "several_ranks", lambda: True)

    def look(step):
        watched = RepeatedWork()
        watched.begin()
        for number in range(STEPS):
            step(number)
            watched.step_ends()
        assert not watched.why_not
        return watched.answers

    return look


def softmax_of(batch, seed):
    """A step with a weight of its own rank, and a softmax of what the batch alone decides."""
    given = torch.Generator().manual_seed(batch)
    weight = torch.randn(SIDE, SIDE, generator=torch.Generator().manual_seed(seed))
    table = torch.ones(SIDE, SIDE)

    parameter = torch.nn.Parameter(torch.ones(SIDE, SIDE))

    def step(number):
        with torch.no_grad():
            (parameter.add_(1.0).double().sum()).item()  # weights are the same on all ranks
        x = torch.randn(SIDE, SIDE, generator=given)
        (x @ weight).sum().item()
        (torch.softmax(x, -1).sum() + (table * 2).sum() + x[0].exp().sum()).item()

    return step


def shared(tmp_path, *ranks):
    """What the first of these ranks is told, from a folder that has all of them."""
    for folder in ("values", "traces"):
        (tmp_path / folder).mkdir()
    for rank, answers in enumerate(ranks):
        document = {"schema": VALUES_SCHEMA, "rank": rank, "work": [], "answers": answers}
        (tmp_path / f"values/rank{rank}.7.json").write_text(json.dumps(document))
    return values_beside(str(tmp_path / "traces/rank0.7.trace.json")).work


def test_what_two_ranks_compute_alike(noted, tmp_path):
    mine, theirs = noted(softmax_of(1, seed=10)), noted(softmax_of(1, seed=11))
    names = [one["name"] for one in mine]
    assert names == ["aten::mm", "aten::_softmax"]  # neither what is the same each step, nor small
    (note,) = shared(tmp_path, mine, theirs)
    assert [one.name for one in note.operations] == ["aten::_softmax"]
    assert (note.kind, note.of, note.times, note.shared_ratio) == ("ranks", 2, 1, 0.5)
    assert note.operations[0].bytes_each == 4 * SIDE * SIDE
    assert note.places[0][2] == "step"


def test_ranks_whose_windows_began_at_other_steps(noted, tmp_path):
    step = softmax_of(1, seed=11)
    step(0)
    mine, later = noted(softmax_of(1, seed=10)), noted(step)
    (note,) = shared(tmp_path, mine, later)
    assert [one.name for one in note.operations] == ["aten::_softmax"]


def test_other_batches_are_other_work(noted, tmp_path):
    assert shared(tmp_path, noted(softmax_of(1, seed=10)), noted(softmax_of(2, seed=10))) == ()


def test_a_process_alone_notes_nothing():
    assert not work.several_ranks()
