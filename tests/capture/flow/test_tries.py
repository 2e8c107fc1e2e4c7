"""Factorisations that fail and are tried again, told by what is read of them."""

import pytest

from pinchpoint.capture.flow.work import STEPS, RepeatedWork

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global torch  # not when tests are collected: its import takes seconds in every process
    torch = pytest.importorskip("torch", reason="watches operations of torch")
    torch.set_num_threads(1)


@pytest.fixture
def notes():
    """Of steps, notes of one kind."""

    def look(step, kind="tries"):
        work = RepeatedWork()
        work.begin()
        for _ in range(STEPS):
            step()
            found = work.step_ends()
        assert not work.why_not
        return [note for note in found if note["kind"] == kind]

    return look


def covariance(*, definite=False):
    """One whose least eigenvalue is -0.5, or 0.5."""
    q, _ = torch.linalg.qr(torch.rand(8, 8))
    values = torch.full((8,), 2.0)
    values[0] = 0.5 if definite else -0.5
    return (q * values) @ q.mT


LADDER = (0.0, 0.1, 1.0)  # the third succeeds


def with_info(k):
    for level in LADDER:
        a = k if not level else k + torch.diag_embed(torch.full_like(k[0], level))
        lower, info = torch.linalg.cholesky_ex(a)
        if not info.any():
            return lower
    raise AssertionError


def in_place(k):
    k = k.clone()
    for before, level in zip((0.0, *LADDER), LADDER, strict=False):
        k.diagonal().add_(level - before)
        lower, info = torch.linalg.cholesky_ex(k)
        if not info.item():
            return lower
    raise AssertionError


def raising(k):
    for level in LADDER:
        try:
            return torch.linalg.cholesky(k + level * torch.eye(8))
        except torch.linalg.LinAlgError:
            continue
    raise AssertionError


@pytest.mark.parametrize("factor", [with_info, in_place, raising])
def test_two_of_three_fail(notes, factor):
    def step():
        for _ in range(2):
            factor(covariance()).diagonal().log().sum().item()

    (note,) = notes(step)
    assert (note["times"], note["of"]) == (4, 6)
    assert note["left_ratio"] == pytest.approx(1 / 3, abs=0.15)
    assert "aten::linalg_cholesky_ex" in {one["name"] for one in note["operations"]}
    assert note["places"][0][2] == factor.__name__


def test_what_is_factored_otherwise_is_left_out_of_it(notes):
    def step():
        lower = with_info(covariance())
        (torch.rand(8, 8) @ lower).sum().item()

    names = {one["name"] for one in notes(step)[0]["operations"]}
    assert {"aten::add", "aten::diag_embed", "aten::any"} <= names
    assert not {"aten::mm", "aten::addmm", "aten::sum", "aten::rand"} & names


def test_as_many_more_steps_as_there_are_requests(notes):
    """Another number of factorisations in each step: shares of all."""
    often = iter((1, 2, 3, 1, 2, 3))

    def step():
        for _ in range(next(often)):
            with_info(covariance()).sum().item()

    (note,) = notes(step)
    assert note["times"] / note["of"] == pytest.approx(2 / 3, abs=0.1)


def check(k):
    """Positive definite or not: nothing is tried again."""
    return not torch.linalg.cholesky_ex(k)[1].any()


def test_a_check_for_positive_definiteness(notes):
    def step():
        for definite in (False, True):
            check(covariance(definite=definite))

    assert notes(step) == []


def test_candidates_that_are_turned_down(notes):
    """The next one is another matrix, whatever diagonal is added to each."""

    def step():
        jitter = 1e-6 * torch.eye(8)
        for definite in (False, False, True):
            lower, info = torch.linalg.cholesky_ex(covariance(definite=definite) + jitter)
            if not info.any():
                lower.sum().item()

    assert notes(step) == []


def test_a_first_try_that_succeeds(notes):
    def step():
        with_info(covariance(definite=True)).sum().item()

    assert notes(step) == []


def test_failures_whose_factors_are_read(notes):
    """What was there until the failure is used."""

    def step():
        k, total = covariance(), 0.0
        for level in LADDER:
            lower, info = torch.linalg.cholesky_ex(k + level * torch.eye(8))
            total = total + lower.diagonal().nan_to_num().sum() + info
        total.item()

    assert notes(step) == []


def test_only_now_and_then(notes):
    turns = iter(range(STEPS))

    def step():
        definite = bool(next(turns) % 2)
        with_info(covariance(definite=definite)).sum().item()

    assert notes(step) == []


def solve(name):
    a = torch.rand(8, 8)
    a = a @ a.mT
    linalg = torch.linalg
    return {
        "_linalg_eigh": lambda: linalg.eigh(a)[0],
        "linalg_eig": lambda: linalg.eig(a)[0].abs(),
        "_linalg_svd": lambda: torch.svd(a)[1],  # V is a view of what is not read
        "linalg_qr": lambda: linalg.qr(a)[1],
    }[name]()


@pytest.mark.parametrize("name", ["_linalg_eigh", "linalg_eig", "_linalg_svd", "linalg_qr"])
def test_values_alone_are_read(notes, name):
    (note,) = notes(lambda: solve(name).sum().item(), "results")
    assert [one["name"] for one in note["operations"]] == [f"aten::{name}"]
    assert note["times"] == 1


def both():
    values, vectors = torch.linalg.eigh(covariance())
    (values.sum() + vectors.sum()).item()


def vectors_alone():
    torch.linalg.eigh(covariance())[1].sum().item()


def largest():
    torch.rand(8, 8).max(-1)[1].sum().item()


def r_alone():
    torch.linalg.qr(torch.rand(8, 8), mode="r")[1].sum().item()


def backward():
    a = torch.rand(8, 8, requires_grad=True)
    torch.linalg.eigh(a @ a.mT)[0].sum().backward()
    a.grad.sum().item()


@pytest.mark.parametrize("step", [both, vectors_alone, largest, r_alone, backward])
def test_all_that_costs_is_read(notes, step):
    assert notes(step, "results") == []


def test_vectors_that_are_read_in_the_next_step(notes):
    kept = []

    def step():
        for vectors in kept:
            vectors.sum().item()
        values, vectors = torch.linalg.eigh(covariance())
        kept[:] = [vectors]
        values.sum().item()

    assert notes(step, "results") == []
