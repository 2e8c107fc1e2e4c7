"""What a rank sends: whole rows of zeros, and work on as many rows."""

import pytest

from pinchpoint.capture.flow import work
from pinchpoint.capture.flow.work import STEPS, RepeatedWork

pytestmark = pytest.mark.torch
ROWS, WIDTH = 512, 64


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global torch  # not when tests are collected: its import takes seconds in every process
    torch = pytest.importorskip("torch", reason="watches operations of torch")


@pytest.fixture
def sent(tmp_path, monkeypatch):
    """Notes of zeros, by the operation, of a job of one rank that takes itself for several."""
    dist = pytest.importorskip("torch.distributed")
    if not dist.is_available():
        pytest.skip("torch has no process groups here")
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    monkeypatch.setattr(work, "several_ranks", lambda: True)

    def look(step):
        watched = RepeatedWork()
        watched.begin()
        for _ in range(STEPS):
            step(dist)
            notes = watched.step_ends()
        assert not watched.why_not
        mine = [note for note in notes if note["kind"] == "zeros"]
        return {note["operations"][0]["name"]: note for note in mine}

    yield look
    dist.destroy_process_group()


def padded(full):
    x = torch.zeros(ROWS, WIDTH)
    x[:full] = torch.randn(full, WIDTH)
    return x


def test_rows_of_zeros_that_are_sent_are_noted_with_work_on_as_many_rows(sent):
    def step(dist):
        x, got = padded(128), torch.empty(ROWS, WIDTH)
        dist.all_to_all_single(got, x)
        got @ torch.randn(WIDTH, 32)  # as many rows, three of four zeros
        padded(128)[:256] @ torch.randn(WIDTH, 32)  # others

    found = sent(step)
    assert found.keys() == {"c10d::alltoall_base_", "aten::mm"}
    assert found["c10d::alltoall_base_"]["read_ratio"] == 0.75
    assert found["c10d::alltoall_base_"]["places"][0][2] == "step"
    (product,) = found["aten::mm"]["operations"]
    assert (found["aten::mm"]["left_ratio"], found["aten::mm"]["times"]) == (0.25, 1)
    assert product["which_of_name"] == [(0, 0)]


def test_rows_are_told_in_the_memory_of_a_transposed_operand(sent):
    def step(dist):
        x = padded(128)
        dist.all_reduce(x)
        x.t() @ torch.randn(ROWS, 32)

    assert sent(step)["aten::mm"]["read_ratio"] == 0.75


@pytest.mark.parametrize(
    "full", [pytest.param(ROWS, id="all full"), pytest.param(ROWS - 64, id="an eighth")]
)
def test_few_rows_of_zeros_are_none(sent, full):
    def step(dist):
        x = padded(full)
        dist.all_reduce(x)

    assert sent(step) == {}


def test_zeros_within_rows_are_no_rows_of_zeros(sent):
    def step(dist):
        x = torch.relu(torch.randn(ROWS, WIDTH))
        dist.all_reduce(x)

    assert sent(step) == {}


def test_work_on_rows_of_zeros_that_nobody_sends_is_left_alone(sent):
    def step(dist):
        padded(128) @ torch.randn(WIDTH, 32)
        dist.all_reduce(torch.ones(4))

    assert sent(step) == {}
