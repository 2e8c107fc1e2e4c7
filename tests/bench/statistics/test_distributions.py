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

stats = pytest.importorskip("scipy.stats", reason="scipy is the oracle")
special = pytest.importorskip("scipy.special", reason="scipy is the oracle")


@pytest.mark.parametrize("a", [0.5, 1.0, 3.0, 40.0, 500.0])
@pytest.mark.parametrize("b", [0.5, 2.0, 30.0, 900.0])
@pytest.mark.parametrize("x", [0.0, 1e-6, 0.2, 0.5, 0.97, 1.0])
def test_incomplete_beta(a, b, x):
    assert incomplete_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), abs=1e-12)


@pytest.mark.parametrize("df", [1, 2, 4, 9, 19, 300, 1e8])
@pytest.mark.parametrize("t", [-40.0, -2.0, 0.0, 0.3, 3.0, 12.0])
def test_t_cdf_and_tail(df, t):
    assert t_cdf(t, df) == pytest.approx(stats.t.cdf(t, df), rel=1e-7, abs=1e-13)
    assert t_upper_tail(t, df) == pytest.approx(stats.t.sf(t, df), rel=1e-6, abs=1e-200)


@pytest.mark.parametrize("df", [1, 4, 9, 19])
@pytest.mark.parametrize("p", [0.002, 0.3, 0.5, 0.95, 0.975, 0.998])
def test_t_quantile(df, p):
    assert t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-9, abs=1e-9)


def test_normal_quantile():
    assert normal_quantile(0.975) == pytest.approx(1.959964, abs=1e-6)


@pytest.mark.parametrize(("n", "p"), [(1, 0.5), (30, 0.9), (6000, 0.99)])
def test_binomial_cdf(n, p):
    for k in np.unique(np.linspace(-1, n, 9).astype(int)):
        assert binomial_cdf(int(k), n, p) == pytest.approx(stats.binom.cdf(k, n, p), abs=1e-10)


@pytest.mark.parametrize("df", [2, 4, 9, 40, 300])
@pytest.mark.parametrize("shift", [0.0, 1.0, 4.0, 9.0])
def test_noncentral_t(df, shift):
    critical = t_quantile(0.99, df)
    expected = stats.nct.sf(critical, df, shift) if shift else 0.01
    assert noncentral_t_upper_tail(critical, df, shift) == pytest.approx(expected, abs=2e-4)
