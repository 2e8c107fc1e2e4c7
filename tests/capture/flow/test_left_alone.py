"""Functions that do something else under a mode run without it while a program is watched."""

import math

import pytest

pytestmark = pytest.mark.torch


@pytest.fixture
def watched():
    torch = pytest.importorskip("torch", reason="watches operations of torch")
    from pinchpoint.capture.flow.watch import Watch

    watch = Watch(torch)
    assert watch.begin()
    yield torch, watch
    watch.close()


def loss(torch, scores):
    targets, lengths = torch.tensor([[1, 2]]), torch.tensor([5])
    return torch.nn.functional.ctc_loss(scores, targets, lengths, torch.tensor([2]))


def test_ctc_loss_meets_no_mode_and_its_scores_count_as_read(watched):
    torch, watch = watched
    scores = torch.zeros(5, 1, 4).log_softmax(2)
    # 35 of the 4 ** 5 paths spell the two labels; the mean is by their number.
    assert loss(torch, scores).item() == pytest.approx(math.log(4**5 / 35) / 2, abs=1e-4)
    named = [one.kind.name for one in watch.steps[-1]]
    assert any("log_softmax" in name for name in named)
    assert not any("ctc" in name for name in named)
    assert watch.storages.all[watch.storages.number(scores)].escaped


def test_what_comes_after_it_is_heard_again(watched):
    torch, watch = watched
    loss(torch, torch.zeros(5, 1, 4).log_softmax(2))
    before = len(watch.steps[-1])
    torch.zeros(3).add_(1.0)
    assert len(watch.steps[-1]) > before


def test_in_the_end_the_function_is_the_own_one_of_torch():
    torch = pytest.importorskip("torch", reason="watches operations of torch")
    from pinchpoint.capture.flow.watch import Watch

    own, watch = torch.ctc_loss, Watch(torch)
    assert watch.begin()
    assert torch.ctc_loss is not own
    watch.close()
    assert torch.ctc_loss is own


@pytest.mark.parametrize("name", ["tolist", "numpy", "data_ptr"])
def test_what_a_method_makes_to_hand_it_out_counts_as_read(monkeypatch, name):
    """As on a device, of which the host reads a copy."""
    torch = pytest.importorskip("torch", reason="watches operations of torch")
    from pinchpoint.capture.flow.watch import Watch

    monkeypatch.setattr(torch.Tensor, name, lambda tensor: tensor.clone().shape)
    watch = Watch(torch)
    assert watch.begin()
    x = torch.ones(3)
    getattr(x, name)()
    x.clone()
    watch.close()
    copies = [one.root for one in watch.steps[-1] if one.kind.name == "aten::clone"]
    assert copies == [True, False]
