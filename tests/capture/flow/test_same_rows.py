"""Work on rows that are the same, told by what operations give."""

import pytest

from pinchpoint.capture.flow import same_rows
from pinchpoint.capture.flow.work import STEPS, RepeatedWork

pytestmark = pytest.mark.torch
WIDE = 32


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global torch  # not when tests are collected: its import takes seconds in every process
    torch = pytest.importorskip("torch", reason="watches operations of torch")
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(same_rows, "LEAST_NUMBERS", 1 << 10)


@pytest.fixture
def notes():
    """Of a step that gives something with a gradient, what it is told of its rows."""

    def look(step):
        work = RepeatedWork()
        work.begin()
        for _ in range(STEPS):
            loss = step().square().sum()
            loss.backward()
            loss.item()
            found = work.step_ends()
        assert not work.why_not
        return [note for note in found if note["kind"] == "rows"]

    return look


def layer():
    return torch.nn.Linear(WIDE, WIDE)


def rows(*shape):
    return torch.randn(*shape, WIDE)


REPEATED = {
    "repeat_interleave": (lambda lin: lin(rows(20).repeat_interleave(8, 0)), 1 / 8),
    "repeat": (lambda lin: lin(rows(4, 20).repeat(8, 1, 1)), 1 / 8),
    "expand": (lambda lin: lin(rows(16, 1).expand(16, 40, WIDE)), 1 / 40),
    "cat": (lambda lin: lin(torch.cat([(x := rows(64)), x])), 1 / 2),
}


@pytest.mark.parametrize("how", sorted(REPEATED))
def test_rows_that_were_repeated(notes, how):
    lin, (step, left) = layer(), REPEATED[how]
    (note,) = notes(lambda: step(lin).relu().add(1).tanh())
    assert note["left_ratio"] == pytest.approx(left, abs=1e-6)
    names = {one["name"] for one in note["operations"]}
    assert {"aten::relu", "aten::tanh"} <= names
    assert names & {"aten::addmm", "aten::mm"}
    assert not any("clone" in name or "repeat" in name or "cat" in name for name in names)


def test_the_place_is_where_they_are_repeated(notes):
    lin = layer()

    def widen(x):
        return x.repeat_interleave(8, 0)

    (note,) = notes(lambda: lin(lin(widen(rows(20)))))
    assert note["places"][0][2] == "widen"


def test_edges_whose_nodes_were_computed(notes):
    nodes, edges, source = layer(), layer(), torch.randint(0, 50, (400,))
    (note,) = notes(lambda: edges(nodes(rows(50))[source]))
    assert note["of"] == 400
    assert {one["name"] for one in note["operations"]} == {"aten::addmm", "aten::pow"}
    assert note["left_ratio"] == pytest.approx(50 / 400, abs=0.01)


def test_until_something_makes_them_different(notes):
    first, second = layer(), layer()

    def step():
        x = first(rows(20).repeat_interleave(8, 0))
        return second(x + torch.randn_like(x))

    (note,) = notes(step)
    assert note["times"] == 1


def test_rows_that_are_the_same_for_another_reason(notes):
    lin, stored, table = layer(), rows(50), torch.nn.Embedding(9, WIDE)

    def padded():
        x = torch.zeros(200, WIDE)
        x[:60] = rows(60)
        return lin(x)

    assert notes(lambda: lin(stored[torch.randint(0, 50, (400,))])) == []  # drawn from data
    assert notes(lambda: lin(torch.ones(200, WIDE))) == []
    assert notes(lambda: lin(table(torch.randint(0, 9, (200,))))) == []
    assert notes(padded) == []
    assert notes(lambda: lin(rows(200))) == []


def test_nearly_all_rows_are_one(notes):
    """What fills a batch up is looked up, too."""
    lin, other, index = layer(), layer(), torch.zeros(400, dtype=torch.int64)
    index[:60] = torch.arange(60)
    assert notes(lambda: other(lin(rows(60))[index])) == []
