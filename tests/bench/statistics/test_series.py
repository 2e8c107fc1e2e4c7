import numpy as np
import pytest

from pinchpoint.bench.statistics.series import (
    effective_count,
    find_warm_up,
    lag1_autocorrelation,
    mad,
    spikes,
    two_modes,
)


def _ar1(n, phi, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    for i in range(1, n):
        x[i] = phi * x[i - 1] + x[i] * np.sqrt(1 - phi**2)
    return 100 + x


def test_autocorrelation_and_effective_count():
    series = _ar1(5000, 0.7)
    assert lag1_autocorrelation(series) == pytest.approx(0.7, abs=0.05)
    assert effective_count(series) == pytest.approx(5000 * 0.3 / 1.7, rel=0.2)
    assert lag1_autocorrelation(np.ones(20)) == 0.0
    assert lag1_autocorrelation(np.ones(9)) is None


def test_mad_and_spikes():
    series = np.array([10.0, 10.1, 9.9, 10.0, 14.0, 10.2, 9.8, 30.0])
    assert mad(np.array([1.0, 2.0, 4.0])) == 1.0
    assert spikes(series) == 2


def test_two_speeds_are_seen():
    modes = two_modes(np.array([22.6, 25.2, 22.5, 22.7, 25.1, 25.3, 22.6]))
    assert (modes.count_low, modes.count_high) == (4, 3)
    assert modes.gap_ratio == pytest.approx(0.115, abs=0.002)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([100, 101, 99, 100.5, 102, 98, 100], id="one mode"),
        pytest.param([100, 100, 100, 100, 100, 150], id="one odd run is no mode"),
        pytest.param([100, 100, 100, 110, 110], id="too few to tell"),
        pytest.param([100, 100, 100, 100.2, 100.2, 100.2], id="two modes that do not matter"),
    ],
)
def test_no_modes(values):
    assert two_modes(np.array(values, float)) is None


def test_warm_up_is_cut_where_the_series_becomes_steady():
    rng = np.random.default_rng(1)
    slow = 100 * (1 + 3 * np.exp(-np.arange(40) / 5))
    series = np.concatenate([slow, np.full(260, 100.0)]) + rng.normal(0, 1, 300)
    found = find_warm_up(series)
    assert found.converged
    assert 15 <= found.count <= 35


def test_one_compilation_at_the_start():
    series = np.array([5000.0] + [10.0] * 30)
    assert find_warm_up(series).count == 1


def test_a_steady_series_has_no_warm_up():
    assert find_warm_up(_ar1(200, 0.5)).count <= 5


def test_a_series_that_keeps_falling_has_not_converged():
    assert not find_warm_up(np.linspace(200, 100, 100)).converged


def test_too_short_to_tell():
    assert not find_warm_up(np.array([1.0, 1.0])).converged
