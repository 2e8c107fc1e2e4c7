"""What a step makes several times of one parameter, but for a state that it moves on."""

import pytest

from pinchpoint.capture.flow.work import STEPS, RepeatedWork

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global torch
    torch = pytest.importorskip("torch", reason="watches operations of torch")
    torch.set_num_threads(1)


@pytest.fixture
def moved():
    """How many operations of each name are made again in steps of a model that is trained.

    It is called ``uses`` times in a step.
    """

    def look(model, uses):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        work = RepeatedWork()
        work.begin()
        for _ in range(STEPS):
            work.seen_model(model)
            x = torch.randn(4, 8)
            for _ in range(uses):
                x = model(x).tanh()
            x.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            notes = work.step_ends()
        assert not work.why_not
        found = {}
        for note in notes:
            for one in note["operations"] if note["kind"] == "moved" else ():
                name = one["name"].removeprefix("aten::")
                times = sum(last - first + 1 for first, last in one["which"])
                found[name] = found.get(name, 0) + times
        return found

    return look


def norms(iterations=1):
    layer = torch.nn.Linear(8, 8)
    return torch.nn.utils.parametrizations.spectral_norm(layer, n_power_iterations=iterations)


def of_own():
    """A norm as programs write it themselves."""

    class Normed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(8, 8))
            self.register_buffer("u", torch.nn.functional.normalize(torch.randn(8), dim=0))

        def forward(self, x):
            with torch.no_grad():
                v = torch.nn.functional.normalize(self.weight.t() @ self.u, dim=0)
                self.u.copy_(torch.nn.functional.normalize(self.weight @ v, dim=0))
            return x @ (self.weight / (self.u.clone() @ self.weight @ v)).t()

    return Normed()


def test_an_estimate_that_moves_on_at_each_use(moved):
    once = {"mv": 3, "div": 3, "linalg_vector_norm": 2, "clamp_min_": 2, "clone": 2, "vdot": 1}
    assert moved(norms(), 4) == {name: 3 * times for name, times in once.items()}
    own = moved(of_own(), 3)  # a vector before a matrix is a matrix of one row
    assert (own["mv"], own["mm"], own["dot"], own["copy_"]) == (2 * 2, 2, 2, 2)


def test_iterations_of_one_use_are_needed(moved):
    assert moved(norms(5), 1) == {}
    assert moved(norms(5), 2)["mv"] == 2 * 5 + 1


def test_what_is_used_once_a_step_is_made_once(moved):
    assert moved(norms(), 1) == {}


def test_the_same_to_the_last_bit_is_another_cause(moved):
    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(8, 8))
    assert moved(layer, 4) == {}


def test_statistics_of_inputs_are_none_of_a_weight(moved):
    assert moved(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)), 4) == {}


def test_a_count_of_calls_is_no_weight(moved):
    class Counted(torch.nn.Linear):
        def __init__(self):
            super().__init__(8, 8)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            with torch.no_grad():
                self.calls.add_(1)
            return super().forward(x) * torch.sigmoid(self.calls)

    assert moved(Counted(), 4) == {}


def test_a_weight_that_is_dropped_at_random_is_another_one(moved):
    class Dropped(torch.nn.Linear):
        def forward(self, x):
            return x @ torch.nn.functional.dropout(self.weight, 0.5).t()

    assert moved(Dropped(8, 8), 4) == {}
