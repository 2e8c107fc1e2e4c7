"""Loops of a step, and what of them needs the turn before, told by what flows where."""

import pytest

from pinchpoint.capture.flow.work import STEPS, RepeatedWork

pytestmark = pytest.mark.torch
TURNS = 20


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global torch  # not when tests are collected: its import takes seconds in every process
    torch = pytest.importorskip("torch", reason="watches operations of torch")
    torch.set_num_threads(1)


@pytest.fixture
def looped():
    """Notes about the loops of a step."""

    def look(step):
        work = RepeatedWork()
        work.begin()
        for _ in range(STEPS):
            step()
            work.step_ends()
        assert not work.why_not
        return work.loops

    return look


def carried(note):
    return {one["name"].removeprefix("aten::") for one in note["carried"]}


def all_of(note):
    return {one["name"].removeprefix("aten::") for one in note["operations"]}


def test_rows_one_after_the_other_need_nothing_of_each_other(looped):
    w = torch.randn(8, 8)

    def step():
        x = torch.randn(TURNS, 8)
        torch.stack([torch.tanh(row @ w) for row in x]).sum().item()

    (note,) = looped(step)
    assert (note["way"], note["turns"], note["carried"]) == ("free", TURNS, [])
    assert all_of(note) == {"tanh", "mm", "squeeze_"}


def test_a_recurrence_and_what_it_does_not_need(looped):
    cell, features = torch.nn.Linear(8, 8), torch.nn.Linear(4, 8)

    def step():
        x, h = torch.randn(3, TURNS, 4), torch.zeros(3, 8)
        for t in range(TURNS):
            f = torch.relu(features(x[:, t]))
            h = torch.tanh(f + cell(h))
        h.sum().backward()
        cell.weight.grad.sum().item()

    (note,) = looped(step)
    assert (note["way"], note["turns"]) == ("chain", TURNS)
    assert all_of(note) == {"relu", "tanh", "add", "addmm"}
    assert carried(note) == {"tanh", "add", "addmm"}
    (inner,) = [one["which"] for one in note["carried"] if one["name"] == "aten::addmm"]
    assert sum(last - first + 1 for first, last in inner) == TURNS  # of two in each turn


def test_a_state_in_a_buffer_is_carried_and_its_rows_are_not(looped):
    buffer = torch.zeros(5, TURNS + 1, 8)

    def into_rows():
        x = torch.randn(5, TURNS, 8)
        for t in range(TURNS):
            buffer[:, t] = torch.tanh(x[:, t])
        buffer.sum().item()

    def from_the_row_before():
        for t in range(TURNS):
            buffer[:, t + 1] = torch.tanh(buffer[:, t])
        buffer.sum().item()

    (note,) = looped(into_rows)
    assert note["way"] == "free"
    (note,) = looped(from_the_row_before)
    assert (note["way"], carried(note)) == ("chain", {"tanh", "copy_"})


@pytest.mark.parametrize(
    ("turn", "way"),
    [
        (lambda h, x: 0.9 * h + x, "scan"),
        (lambda h, x: h * x, "scan"),
        (lambda h, x: h * h + x, "chain"),
        (lambda h, x: torch.sin(h) + x, "chain"),
    ],
)
def test_sums_are_a_scan(looped, turn, way):
    def step():
        h = torch.zeros(8)
        for x in torch.randn(TURNS, 8).exp():
            h = turn(h, x)
        h.sum().item()

    (note,) = looped(step)
    assert note["way"] == way


def test_what_the_host_reads_in_a_loop_may_come_back_unseen(looped):
    table = torch.randn(50, 8)

    def step():
        token = 3
        for _ in range(TURNS):
            token = int((table @ table[token]).argmax())

    (note,) = looped(step)
    assert note["way"] == "unseen"


def test_two_loops_in_one_function_are_told_apart_and_few_layers_are_none(looped):
    layers = [torch.nn.Linear(8, 8) for _ in range(4)]

    def step():
        x, h = torch.randn(TURNS, 8), torch.zeros(8)
        rows = []
        for row in x:
            rows.append(row.exp())
        for row in rows:
            h = (h + row).tanh()
        for layer in layers:
            h = layer(h)
        h.sum().item()

    notes = looped(step)
    assert [(note["way"], all_of(note)) for note in notes] == [
        ("chain", {"add", "tanh"}),
        ("free", {"exp"}),
    ]


def test_weights_that_a_loop_updates_are_carried(looped):
    weights = torch.nn.Parameter(torch.randn(8))

    def step():
        for x in torch.randn(TURNS, 8):
            (weights * x).sum().square().backward()
            with torch.no_grad():
                weights.sub_(weights.grad, alpha=0.1)
            weights.grad = None

    notes = looped(step)
    assert notes[0]["way"] == "chain"
    assert "mul" in carried(notes[0])
