"""Calls of solvers after the watched steps: another way is tried at the first of each line."""

import pytest

from pinchpoint.capture.process.rare_calls import RareCalls
from pinchpoint.capture.ways import trials

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global torch  # not when tests are collected: its import takes seconds in every process
    torch = pytest.importorskip("torch", reason="watches operations of torch")


@pytest.fixture
def rare(monkeypatch):
    """Begun at step 10; what an operator takes is four times what another way does."""
    tried, operators, step = trials.Trials._try, [], [10]

    def trying(self, original, other):
        operators.append(original)
        return tried(self, original, other)

    def timed(_, run):
        return (8 if run in operators else 2) * trials.LEAST_NS, run()

    monkeypatch.setattr(trials.Trials, "_try", trying)
    monkeypatch.setattr(trials.Trials, "_timed", timed)
    calls = RareCalls(lambda: step[0], lambda: ("optimizer.py", 30, "root"))
    before = (torch.linalg.svd, torch.Tensor.inverse, torch.inverse)
    calls.begin()
    step[0] = 50
    yield calls
    calls.end()
    assert (torch.linalg.svd, torch.Tensor.inverse, torch.inverse) == before


def definite(n=32):
    a = torch.rand(n, n)
    return a @ a.mT / n + torch.eye(n)


def test_another_way_and_how_often_it_is_called(rare):
    for _ in range(6):
        values = torch.linalg.svd(definite())[1]
    assert values.shape == (32,)
    (note,) = rare.end()
    assert note == {
        "place": ("optimizer.py", 30, "root"),
        "operator": "aten::_linalg_svd",
        "way": "svd-of-symmetric",
        "tried_ns": 8 * trials.LEAST_NS,
        "left_ratio": 0.25,
        "calls": 6,
        "steps": 40,
    }


def test_methods_too_and_gradients_as_ever(rare):
    a = definite().requires_grad_()
    a.inverse().sum().backward()
    assert a.grad is not None
    (note,) = rare.end()
    assert note["way"] == "inverse-of-definite"


def test_arguments_that_allow_no_other_way(rare):
    torch.linalg.svd(torch.rand(32, 32))
    with pytest.raises(RuntimeError):
        torch.linalg.svd(torch.rand(3))
    assert rare.end() == []


def test_calls_that_are_not_seldom_are_let_go(rare, monkeypatch):
    monkeypatch.setattr("pinchpoint.capture.process.rare_calls.MOST_CALLS", 3)
    for _ in range(9):
        torch.det(torch.rand(3, 3))
    assert torch.linalg.svd.__name__ == "linalg_svd"


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_what_is_scripted_and_transformed_is_as_ever(rare):
    def both(a):
        return torch.unique(torch.sort(torch.inverse(a))[0], return_inverse=True)

    a = definite(4)
    assert torch.equal(both(a)[0], torch.jit.script(both)(a)[0])
    many = torch.stack([definite(), definite()])
    each = torch.func.vmap(torch.linalg.svd)(many)[1]
    assert torch.allclose(each, torch.linalg.svd(many)[1], atol=1e-5)
    jacobian = torch.func.jacrev(torch.linalg.svdvals)(definite())
    assert jacobian.shape == (32, 32, 32)
