"""Products whose order takes more operations than another one, told by what flows where."""

import pytest

from pinchpoint.capture.flow.work import STEPS, RepeatedWork

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global torch  # not when tests are collected: its import takes seconds in every process
    torch = pytest.importorskip("torch", reason="watches operations of torch")
    torch.set_num_threads(1)


@pytest.fixture
def costly():
    """Notes about products in a costly order of a step."""

    def look(step):
        work = RepeatedWork()
        work.begin()
        for number in range(STEPS):
            step(number)
            notes = work.step_ends()
        assert not work.why_not
        return [note for note in notes if note["kind"] == "order"]

    return look


def trained(*parameters):
    for one in parameters:
        one.grad.mul_(1.0)  # as an optimizer reads it
        one.grad = None


def gram_polynomial(x, steps=2):
    for _ in range(steps):
        s = x @ x.mT
        x = torch.addmm(x, torch.addmm(s, s, s, beta=-4.8, alpha=2.0), x, beta=3.4)
    return x


def test_a_polynomial_of_the_gram_matrix_on_the_long_side(costly):
    (note,) = costly(lambda _: gram_polynomial(torch.randn(256, 64)).sum().item())
    n, m = 64, 256
    assert note["flops"] == 2 * 2 * (m * m * n + m**3 + m * m * n)
    assert note["flops_left"] == 2 * 2 * (m * n * n + n**3 + m * n * n)
    assert (note["times"], note["times_left"]) == (6, 6)
    assert {place[2] for place in note["places"]} == {"gram_polynomial"}


def test_on_the_short_side_it_is_as_it_should_be(costly):
    assert costly(lambda _: gram_polynomial(torch.randn(64, 256)).sum().item()) == []


@pytest.mark.parametrize("columns", [(), (1,)])
def test_a_product_of_matrices_for_one_vector(costly, columns):
    def step(_):
        a, v = torch.randn(128, 128), torch.randn(128, *columns)
        ((a @ a.t()) @ v).sum().item()

    (note,) = costly(step)
    assert (note["flops"], note["flops_left"]) == (2 * 128**3 + 2 * 128**2, 4 * 128**2)


def test_scores_of_all_pairs_without_a_softmax(costly):
    def step(_):
        q, k, v = (torch.randn(2, 256, 16) for _ in range(3))
        ((q @ k.mT) * 0.25 @ v).sum().item()

    (note,) = costly(step)
    assert note["flops_left"] * 16 == note["flops"]


def test_weights_are_merged_for_each_gradient(costly):
    a, b = (torch.nn.Parameter(torch.randn(size)) for size in ((256, 8), (8, 256)))

    def step(_):
        (torch.randn(512, 256) @ (a @ b)).square().mean().backward()
        trained(a, b)

    (note,) = costly(step)
    assert note["flops_left"] < 0.1 * note["flops"]


LEFT_ALONE = {
    "another order of the same": lambda a, v: a @ (a.t() @ v),
    "a softmax between": lambda a, v: torch.softmax(a @ a.t(), -1) @ v,
    "a mask between": lambda a, v: (a @ a.t()).tril() @ v,
    "in place between": lambda a, v: (a @ a.t()).mul_(a) @ v,
    "a norm that reads it": lambda a, v: (s := a @ a.t()) @ v + s.norm(),
    "a part of it": lambda a, v: (a @ a.t())[:64] @ v,
    "something else added": lambda a, v: (a @ a.t() + a) @ v,
}


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_left_alone(costly, what):
    given = torch.randn(128, 128), torch.randn(128, 1)
    assert costly(lambda _: LEFT_ALONE[what](*given).sum().item()) == []


def test_what_it_is_made_from_is_changed_before_it_is_read(costly):
    def step(_):
        a, v = torch.randn(128, 128), torch.randn(128, 1)
        s = a @ a.t()
        a.add_(1.0)
        (s @ v).sum().item()

    assert costly(step) == []


def test_what_is_kept_for_later_is_needed(costly):
    kept = []

    def step(_):
        a, v = torch.randn(128, 128), torch.randn(128, 1)
        s = a @ a.t()
        kept.append(s)
        (s @ v).sum().item()

    assert costly(step) == []


def test_products_with_small_matrices_beside_a_large_one(costly):
    a, b = (torch.nn.Parameter(torch.randn(size)) for size in ((256, 8), (8, 256)))
    weight = torch.randn(256, 256)

    def step(_):
        x = torch.randn(512, 256)
        (x @ weight + (x @ a) @ b).square().mean().backward()
        trained(a, b)

    assert costly(step) == []


def test_layers_with_something_in_between(costly):
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64), torch.nn.Tanh()
    )

    def step(_):
        model(torch.randn(512, 64)).square().mean().backward()
        trained(*model.parameters())

    assert costly(step) == []


def test_an_adapter_that_is_added_to_the_weight(costly):
    """Nobody needs the gradient of all of the weight, and the factor on its way."""
    weight = torch.randn(192, 256)
    a, b = (torch.nn.Parameter(torch.randn(size)) for size in ((8, 256), (192, 8)))

    def merged():
        return weight + (b @ a) * 2.0

    def step(_):
        x = torch.randn(512, 256, requires_grad=True)
        torch.nn.functional.linear(x, merged()).square().mean().backward()
        trained(a, b, x)

    (note,) = costly(step)
    assert note["flops"] == 2 * 192 * 256 * (512 + 8 + 8)
    assert note["flops_left"] == 4 * 512 * 8 * (192 + 256)
    assert {place[2] for place in note["places"]} == {"merged"}
    names = {one["name"]: one["which"] for one in note["operations"]}
    assert names["aten::mul"] == [(1, 1)]  # the first is that of the forward pass


def test_a_weight_that_is_trained_needs_all_of_its_gradient(costly):
    weight, a, b = (
        torch.nn.Parameter(torch.randn(size)) for size in ((192, 256), (8, 256), (192, 8))
    )

    def step(_):
        torch.nn.functional.linear(torch.randn(512, 256), weight + b @ a).square().mean().backward()
        trained(weight, a, b)

    assert costly(step) == []


def _of_rows_of_one_length(weight, a, b):
    whole = weight + b @ a
    return whole / whole.norm(dim=1, keepdim=True)


NEEDED = {"a norm of all of it": _of_rows_of_one_length, "a mask": lambda w, a, b: w * (b @ a)}


@pytest.mark.parametrize("what", NEEDED)
def test_a_weight_whose_gradient_is_needed_number_by_number(costly, what):
    weight = torch.randn(192, 256)
    a, b = (torch.nn.Parameter(torch.randn(size)) for size in ((8, 256), (192, 8)))

    def step(_):
        whole = NEEDED[what](weight, a, b)
        torch.nn.functional.linear(torch.randn(512, 256), whole).square().mean().backward()
        trained(a, b)

    assert costly(step) == []


def test_gradients_in_between_that_biases_and_other_branches_take_as_well(costly):
    up, down, head = (torch.nn.Linear(*sizes) for sizes in ((256, 256), (256, 256), (256, 16)))
    parameters = [p for one in (up, down, head) for p in one.parameters()]

    def step(_):
        x = torch.randn(384, 256, requires_grad=True)
        y = head(x + down(torch.relu(up(x))))  # of few classes: gradients of low rank
        y.pow(2).mean().backward()
        trained(*parameters)
        return y.sum().item()

    assert costly(step) == []
