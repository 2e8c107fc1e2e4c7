import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.bench.statistics.intervals import (
    batch_median_interval,
    least_count,
    mean_interval,
    quantile_interval,
    quantile_ranks,
)


@pytest.mark.parametrize(("q", "n"), [(0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368), (0.999, 3688)])
def test_least_counts_are_the_published_ones(q, n):
    assert least_count(q) == n
    assert quantile_ranks(n - 1, q) is None


def test_median_of_six_runs_from_first_to_last():
    assert quantile_interval(np.array([3.0, 1, 2, 6, 5, 4]), 0.5) == (1.0, 6.0)


@given(st.integers(6, 400), st.floats(0.3, 0.7))
def test_ranks_hold_their_level(n, q):
    stats = pytest.importorskip("scipy.stats", reason="scipy is the oracle")
    ranks = quantile_ranks(n, q)
    if ranks is None:
        return
    low, high = ranks
    assert 1 <= low < high <= n
    coverage = stats.binom.cdf(high - 1, n, q) - stats.binom.cdf(low - 1, n, q)
    assert coverage >= 0.95 - 1e-9
    if low < high - 1:  # and no rank is given away
        assert stats.binom.cdf(low, n, q) > 0.025 - 1e-9


def _steps(rng, n, phi):
    noise = rng.normal(0, 2 * np.sqrt(1 - phi**2), n)
    for i in range(1, n):
        noise[i] += phi * noise[i - 1]
    times = 100 * np.exp(noise / 100)
    times[rng.random(n) < 0.01] *= 2
    return times


@pytest.mark.parametrize("phi", [0.0, 0.7])
def test_batch_medians_cover_the_median_of_autocorrelated_steps(phi):
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(200):
        low, high = batch_median_interval(_steps(rng, 300, phi))
        hits += low <= 100.0 <= high
    assert hits >= 0.9 * 200


def test_batch_medians_need_two_values_a_batch():
    assert batch_median_interval(np.ones(19)) is None
    assert batch_median_interval(np.ones(20)) == (1.0, 1.0)


def test_mean_interval_of_three_uses_t_not_z():
    low, high = mean_interval(np.array([1.0, 2.0, 3.0]))
    assert high - 2 == pytest.approx(4.302653 / np.sqrt(3), rel=1e-6)
    assert low == pytest.approx(4 - high)
    assert mean_interval(np.array([1.0])) is None
