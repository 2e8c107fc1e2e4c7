"""What a rank sends in each step: the same bits as before, or something new."""

import pytest

from pinchpoint.capture.flow import work
from pinchpoint.capture.flow.work import STEPS, RepeatedWork

pytestmark = pytest.mark.torch
ELEMENTS = 1 << 16


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global torch  # not when tests are collected: its import takes seconds in every process
    torch = pytest.importorskip("torch", reason="watches operations of torch")


@pytest.fixture
def sent(tmp_path, monkeypatch):
    """Notes of what is sent again, of a job of one rank that takes itself for several."""
    dist = pytest.importorskip("torch.distributed")
    if not dist.is_available():
        pytest.skip("torch has no process groups here")
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    monkeypatch.setattr(work, "several_ranks", lambda: True)

    def look(step):
        watched = RepeatedWork()
        watched.begin()
        for number in range(STEPS):
            step(dist, number)
            notes = watched.step_ends()
        assert not watched.why_not
        return [note for note in notes if note["kind"] == "sent"]

    yield look
    dist.destroy_process_group()


def test_a_table_that_never_changes_is_noted_where_it_is_sent(sent):
    table = torch.randn(ELEMENTS)

    def step(dist, number):
        dist.broadcast(table, 0)
        dist.broadcast(torch.randn(ELEMENTS), 0)

    (note,) = sent(step)
    assert note["places"][0][2] == "step"
    (operation,) = note["operations"]
    assert (operation["name"], operation["which"]) == ("c10d::broadcast_", [(0, 0)])
    assert (note["times"], operation["count"]) == (1, 2)


def test_a_part_of_a_larger_tensor_counts_by_itself(sent):
    """Beside it, something changes in each step."""
    table = torch.randn(2, ELEMENTS)

    def step(dist, number):
        table[1] += 1
        dist.broadcast(table[0], 0)

    assert len(sent(step)) == 1


@pytest.mark.parametrize(
    "case", ["it changes", "it changes now and then", "a flag", "what all give", "another's"]
)
def test_what_is_new_small_or_of_several_ranks_is_none(sent, case):
    table = torch.randn(ELEMENTS)

    def step(dist, number):
        if case == "it changes" or (case == "it changes now and then" and number == 3):
            table.add_(1)
        if case == "a flag":
            dist.broadcast(torch.ones(4), 0)
        elif case == "what all give":
            dist.all_reduce(table.clone())
        elif case == "another's":
            with pytest.raises(Exception, match=r"root|rank"):
                torch.ops.c10d.broadcast_([table], dist.group.WORLD.boxed(), 1, 0)
        else:
            dist.broadcast(table, 0)

    assert sent(step) == []
