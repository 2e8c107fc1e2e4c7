import numpy as np
import pytest

from pinchpoint.compare.noise import noise, rank_from_below

MS = 1_000_000


def _ms(*values):
    return np.array([round(v * MS) for v in values], np.int64)


@pytest.mark.parametrize(
    ("n", "m", "rank"),
    [(3, 3, 0), (4, 4, 1), (3, 5, 1), (5, 5, 3), (8, 10, 18), (10, 10, 24), (20, 20, 128)],
)
def test_ranks_are_those_of_the_tables_of_mann_and_whitney(n, m, rank):
    """Critical values of U at 5 %, two-sided, as printed in tables, plus one."""
    assert rank_from_below(n, m) == rank == rank_from_below(m, n)


def test_the_normal_limit_meets_the_exact_count():
    assert rank_from_below(21, 21) == pytest.approx(
        rank_from_below(20, 20) * 21**2 / 20**2, rel=0.02
    )


def test_no_overlap_is_never_noise():
    found = noise(_ms(33, 34, 32, 33.5), _ms(515, 514, 5160, 500))
    assert found.sure is True
    assert found.interval_ns == (466 * MS, 5128 * MS)


@pytest.mark.parametrize(
    ("a", "b", "sure"),
    [
        pytest.param((33, 34), (515, 510), True, id="far apart"),
        pytest.param((33, 40), (41, 42), None, id="apart, but no more than they span"),
        pytest.param((33, 40), (39, 42), None, id="they overlap"),
        pytest.param((33,), (515, 510), None, id="one value has no spread"),
    ],
)
def test_few_values(a, b, sure):
    found = noise(_ms(*a), _ms(*b))
    assert (found.interval_ns, found.sure) == (None, sure)


def test_many_values_are_thinned_and_say_the_same():
    a = np.arange(5000, dtype=np.int64) * 1000
    same, moved = noise(a, a[::-1]), noise(a, a + 200_000)
    assert same.sure is False
    assert moved.sure is True
    assert moved.interval_ns[0] < 200_000 < moved.interval_ns[1]
    assert moved.half_ns == pytest.approx(56_600, rel=0.05)  # 1.96 sd sqrt(2 / n) of a uniform


def test_a_rare_long_step_is_not_called_noise():
    usual = _ms(*[10 + 0.01 * i for i in range(8)])
    found = noise(usual, np.append(usual[:-1], 300 * MS))
    assert found.interval_ns[0] <= 0 <= found.interval_ns[1]
    assert found.sure is None
