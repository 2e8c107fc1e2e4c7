"""Other ways to what operators give: of arguments that allow them, and of those that do not."""

import pytest

from pinchpoint.capture.flow.work import STEPS, RepeatedWork
from pinchpoint.capture.ways import trials
from pinchpoint.diagnosis.evidence.tried_ways import tried_ways

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global torch  # not when tests are collected: its import takes seconds in every process
    torch = pytest.importorskip("torch", reason="watches operations of torch")
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _every_way_is_quicker(monkeypatch):
    """What a way takes here says nothing of the machine that a program runs on."""

    tried, operators = trials.Trials._try, []

    def trying(self, original, other):
        operators.append(original)
        return tried(self, original, other)

    def timed(_, run):
        return (8 if run in operators else 2) * trials.LEAST_NS, run()

    monkeypatch.setattr(trials.Trials, "_try", trying)
    monkeypatch.setattr(trials.Trials, "_timed", timed)
    for module, name in (("multiplying", "LEAST_PRODUCTS"), ("convolving", "LEAST_WORK")):
        monkeypatch.setattr(f"pinchpoint.capture.ways.{module}.{name}", 0)
    monkeypatch.setattr("pinchpoint.capture.ways.ordering.LEAST_SORTED", 8)


@pytest.fixture
def notes(monkeypatch):
    """Of a step, what it is told of other ways."""
    monkeypatch.setattr("pinchpoint.capture.flow.work._others_run", lambda: False)

    def look(step):
        work = RepeatedWork()
        work.begin()
        for number in range(STEPS):
            answer = step(number)
            answer = answer[0] if isinstance(answer, tuple) else answer
            answer.abs().sum().item()
            found = work.step_ends()
        assert not work.why_not
        return [note for note in found if note["kind"] == "way"]

    return look


def square(n=32):
    return torch.rand(n, n) + torch.eye(n)


def definite(n=32):
    a = torch.rand(n, n)
    return a @ a.mT / n + torch.eye(n)


def diagonal(n=64):
    return torch.diag(torch.rand(n) + 1)


def few(n=128):
    a = torch.zeros(n, n)
    a[torch.arange(0, n, 2), torch.arange(0, n, 2).flip(0)] = 2.0
    a[3, 5] = 1.0
    return a


def one_hot(rows=256, n=128):
    a = torch.zeros(rows, n)
    return a.scatter_(1, torch.randint(0, n, (rows, 1)), 1.0)


def window(n=7):
    return torch.outer(torch.rand(n) + 1, torch.rand(n) + 1).expand(3, 1, n, n).contiguous()


def depthwise(x, w):
    return torch.nn.functional.conv2d(x, w, padding=3, groups=3)


def alone(n=8):
    w = torch.zeros(n, n, 3, 3)
    w[torch.arange(n), torch.arange(n)] = torch.rand(n, 3, 3)
    return w


WAYS = {
    "svd-of-symmetric": lambda: torch.linalg.svd(definite()),
    "eig-of-symmetric": lambda: torch.linalg.eig(definite()),
    "inverse-of-diagonal": lambda: torch.linalg.inv(diagonal()),
    "inverse-of-triangular": lambda: torch.linalg.inv(torch.linalg.cholesky(definite())),
    "inverse-of-definite": lambda: torch.linalg.inv(definite()),
    "solve-with-diagonal": lambda: torch.linalg.solve(diagonal(), torch.rand(64, 3)),
    "solve-with-triangular": lambda: torch.linalg.solve(square().triu(), torch.rand(32)),
    "solve-with-definite": lambda: torch.linalg.solve(definite(), torch.rand(32, 3)),
    "determinant-of-triangular": lambda: torch.linalg.det(square().tril()),
    "determinant-of-definite": lambda: torch.linalg.slogdet(definite())[1],
    "exponential-of-diagonal": lambda: torch.linalg.matrix_exp(diagonal()),
    "exponential-of-symmetric": lambda: torch.linalg.matrix_exp(definite()),
    "pinv-of-symmetric": lambda: torch.linalg.pinv(definite()),
    "pinv-of-full-rank": lambda: torch.linalg.pinv(square()[:, :16]),
    "product-with-diagonal": lambda: torch.rand(9, 64) @ diagonal(),
    "product-with-one-hot": lambda: one_hot() @ torch.rand(128, 9),
    "product-with-zeros": lambda: few() @ torch.rand(128, 9),
    "product-of-tiny": lambda: torch.bmm(torch.rand(99, 3, 3), torch.rand(99, 3, 3)),
    "convolution-of-column-and-row": lambda: depthwise(torch.rand(1, 3, 9, 9), window()),
    "convolution-of-channels-alone": lambda: torch.conv2d(torch.rand(1, 8, 9, 9), alone()),
    "convolution-of-long-window": lambda: torch.conv1d(
        torch.rand(2, 1, 400), torch.rand(1, 1, 150), torch.rand(1), padding=10
    ),
    "largest-of-large-window": lambda: torch.max_pool2d(torch.randn(1, 1, 19, 19), 7, 1, 3),
    "mean-of-large-window": lambda: torch.nn.functional.avg_pool2d(
        torch.rand(1, 1, 19, 19), 7, 1, 3
    ),
    "sort-of-small-numbers": lambda: torch.randint(-9, 9, (99,)).sort(),
    "unique-of-small-range": lambda: torch.randint(0, 9, (99,)).unique(return_inverse=True),
    "unique-of-rows": lambda: torch.randint(0, 9, (99, 2)).unique(dim=0),
    "inverse-of-rotation": lambda: torch.linalg.inv(torch.linalg.qr(torch.rand(9, 3, 3))[0]),
    "cholesky-of-diagonal": lambda: torch.linalg.cholesky(diagonal()),
    "least-squares": lambda: torch.linalg.lstsq(torch.rand(200, 8), torch.rand(200, 2)).solution,
    "product-with-one-matrix": lambda: torch.bmm(
        torch.rand(4, 20, 16), torch.rand(16, 9).expand(4, 16, 9)
    ),
    "convolution-of-patches": lambda: torch.conv2d(
        torch.rand(2, 3, 12, 8), torch.rand(5, 3, 4, 2), torch.rand(5), stride=(4, 2)
    ),
    "largest-by-pieces": lambda: torch.rand(3, 1 << 16).topk(5),
    "kth-by-sort": lambda: torch.rand(1 << 16).kthvalue(700),
    "running-sum-in-order": lambda: torch.rand(30, 40).cumsum(0),
    "additions-in-32-bits": lambda: torch.zeros(9, 4, dtype=torch.bfloat16).index_add(
        0, torch.randint(0, 9, (50,)), torch.rand(50, 4, dtype=torch.bfloat16)
    ),
    "transform-of-real": lambda: torch.fft.fft(torch.rand(9, 16).to(torch.complex64)),
}


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_way_that_gives_the_same(notes, way):
    """Each gives the same numbers, else nothing would be told of it."""
    (note,) = notes(lambda _: WAYS[way]())
    assert (note["way"], note["times"]) == (way, 1)
    assert note["left_ratio"] == 0.25
    assert note["places"][0][0].endswith("test_ways.py")


def test_all_ways_have_words():
    assert {*WAYS, "svd-of-all-sides"} == set(tried_ways())


HEALTHY = {
    "matrices of any kind": lambda: torch.linalg.inv(torch.rand(9, 3, 3) + torch.eye(3)),
    "identities": lambda: torch.linalg.inv(torch.eye(3).expand(9, 3, 3)),
    "as many rows as columns": lambda: torch.linalg.lstsq(square(), square()).solution,
    "a batch of matrices": lambda: torch.bmm(torch.rand(4, 20, 16), torch.rand(4, 16, 9)),
    "windows that overlap": lambda: torch.conv2d(torch.rand(2, 3, 12, 8), torch.rand(5, 3, 4, 2)),
    "a short row": lambda: torch.rand(900).topk(5),
    "most of a row": lambda: torch.rand(1 << 16).topk(1 << 15),
    "sums along the last dimension": lambda: torch.rand(30, 40).cumsum(1),
    "additions in 32 bits": lambda: torch.zeros(9, 4).index_add(
        0, torch.randint(0, 9, (50,)), torch.rand(50, 4)
    ),
    "svd": lambda: torch.linalg.svd(square()),
    "inverse": lambda: torch.linalg.inv(square()),
    "inverse of a symmetric matrix that is not definite": lambda: torch.linalg.inv(
        definite() - 1.2 * torch.eye(32)
    ),
    "the identity": lambda: torch.linalg.inv(2 * torch.eye(32)),
    "a product with the identity": lambda: torch.rand(9, 64) @ torch.eye(64),
    "a product with zeros alone": lambda: torch.rand(9, 64) @ torch.zeros(64, 64),
    "a product": lambda: square() @ square(),
    "a product with zeros of a relu": lambda: square().sub(1).relu() @ square(),
    "a window of any weights": lambda: depthwise(torch.rand(1, 3, 9, 9), torch.rand(3, 1, 7, 7)),
    "a convolution": lambda: torch.conv2d(torch.rand(1, 8, 9, 9), torch.rand(8, 8, 3, 3)),
    "windows that do not overlap": lambda: torch.max_pool2d(torch.rand(1, 1, 16, 16), 8),
    "large numbers": lambda: (torch.randint(0, 9, (99,)) << 40).sort(),
    "a large range": lambda: (torch.randint(0, 9, (99,)) << 40).unique(),
    "rows of large numbers": lambda: (torch.randint(0, 9, (99, 2)) << 40).unique(dim=0),
    "complex numbers": lambda: torch.fft.fft(torch.rand(9, 16) * 1j + 1),
}


@pytest.mark.parametrize("case", sorted(HEALTHY))
def test_arguments_that_allow_no_other_way(notes, case):
    assert notes(lambda _: HEALTHY[case]()) == []


def test_what_an_operator_writes_to_is_the_programs(notes):
    sums = torch.zeros(9, 4, dtype=torch.bfloat16)

    def step(number):
        sums.index_add_(0, torch.arange(9), torch.ones(9, 4, dtype=torch.bfloat16))
        assert sums.eq(number + 1).all()
        return sums

    (note,) = notes(step)
    assert note["way"] == "additions-in-32-bits"


def test_what_is_so_in_some_steps_only(notes):
    def step(number):
        return torch.linalg.inv(diagonal() if number < 3 else square(64))

    assert notes(step) == []


def test_of_several_calls_at_one_place_some(notes):
    """A weight that is diagonal is no reason to leave the others."""
    weights = [diagonal(), square(64)]

    def step(_):
        x = torch.rand(9, 64)
        for weight in weights:
            x = x @ weight
        return x

    assert notes(step) == []


def test_vectors_that_are_not_read(notes):
    (note,) = notes(lambda _: torch.linalg.svd(torch.rand(64, 8))[0][:, :8].clone())
    assert note["way"] == "svd-of-all-sides"
    assert notes(lambda _: torch.linalg.svd(torch.rand(64, 8))[0].clone()) == []


def test_a_way_that_gives_something_else(notes, monkeypatch):
    monkeypatch.setattr(torch, "cholesky_inverse", lambda a: a)
    assert notes(lambda _: torch.linalg.inv(definite())) == []


def test_a_way_that_is_no_quicker(notes, monkeypatch):
    monkeypatch.setattr(trials, "LEAST_QUICKER", 5.0)
    assert notes(lambda _: torch.linalg.inv(diagonal())) == []
