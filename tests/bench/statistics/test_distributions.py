from itertools import product

import numpy as np
import pytest

from pinchpoint.bench.statistics.distributions import (
    binomial_cdf,
    incomplete_beta,
    noncentral_t_upper_tail,
    normal_quantile,
    t_cdf,
    t_quantile,
    t_upper_tail,
)


@pytest.fixture(scope="module")
def stats():
    return pytest.importorskip("scipy.stats", reason="scipy is the oracle")


def test_incomplete_beta():
    special = pytest.importorskip("scipy.special", reason="scipy is the oracle")
    shapes = (0.5, 1.0, 3.0, 40.0, 500.0), (0.5, 2.0, 30.0, 900.0)
    for a, b, x in product(*shapes, (0.0, 1e-6, 0.2, 0.5, 0.97, 1.0)):
        assert incomplete_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), abs=1e-12)


def test_t_cdf_and_tail(stats):
    for df, t in product((1, 2, 4, 9, 19, 300, 1e8), (-40.0, -2.0, 0.0, 0.3, 3.0, 12.0)):
        assert t_cdf(t, df) == pytest.approx(stats.t.cdf(t, df), rel=1e-7, abs=1e-13)
        assert t_upper_tail(t, df) == pytest.approx(stats.t.sf(t, df), rel=1e-6, abs=1e-200)


def test_t_quantile(stats):
    for df, p in product((1, 4, 9, 19), (0.002, 0.3, 0.5, 0.95, 0.975, 0.998)):
        assert t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-9, abs=1e-9)


def test_normal_quantile():
    assert normal_quantile(0.975) == pytest.approx(1.959964, abs=1e-6)


@pytest.mark.parametrize(("n", "p"), [(1, 0.5), (30, 0.9), (6000, 0.99)])
def test_binomial_cdf(stats, n, p):
    for k in np.unique(np.linspace(-1, n, 9).astype(int)):
        assert binomial_cdf(int(k), n, p) == pytest.approx(stats.binom.cdf(k, n, p), abs=1e-10)


def test_noncentral_t(stats):
    for df, shift in product((2, 4, 9, 40, 300), (0.0, 1.0, 4.0, 9.0)):
        critical = t_quantile(0.99, df)
        expected = stats.nct.sf(critical, df, shift) if shift else 0.01
        assert noncentral_t_upper_tail(critical, df, shift) == pytest.approx(expected, abs=2e-4)
