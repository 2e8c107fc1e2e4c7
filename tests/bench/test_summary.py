import numpy as np
import pytest

from pinchpoint.bench.run.timed import _LEAST, PERCENTILES, summarize_requests, summarize_steps
from pinchpoint.bench.statistics.intervals import least_count, quantile_bounds


def test_a_percentile_without_an_interval_has_an_open_side_with_its_reason():
    summary, unknown = summarize_steps(np.arange(1.0, 301.0))
    assert summary.p95 == pytest.approx(285.05)
    assert summary.p95_ci95[0] < 285 < summary.p95_ci95[1]
    assert summary.p99 == pytest.approx(297.01)
    assert summary.p99_ci95 is None
    assert summary.p99_bounds == (294.0, None)  # P(Bin(300, .99) <= 293) = 3.1 %, <= 294: 8.0 %
    assert unknown["p99_ci95"] == "n=300 < 368: one side is open, see p99_bounds"


def test_the_stated_least_counts_are_the_true_ones():
    assert {name: least_count(q) for name, q in PERCENTILES.items()} == _LEAST


def test_medians_of_steps_and_of_requests_have_their_own_intervals():
    rng = np.random.default_rng(0)
    walk = 100 + np.cumsum(rng.normal(0, 0.3, 300))  # steps that remember
    steps, _ = summarize_steps(walk)
    requests, _ = summarize_requests(walk)
    width = [s.median_ci95[1] - s.median_ci95[0] for s in (steps, requests)]
    assert width[0] > width[1]


def test_few_values():
    summary, unknown = summarize_steps(np.array([3.0, 1.0, 2.0]))
    assert (summary.median, summary.median_ci95) == (2.0, None)
    assert unknown["median_ci95"] == "batch medians need 20 steps"
    assert summarize_requests(np.zeros(0)) == (summary.__class__(count=0), {"": "no values"})


@pytest.mark.parametrize(
    ("n", "q", "bounds"),
    [
        pytest.param(0, 0.95, (None, None), id="nothing"),
        pytest.param(2, 0.95, (1.0, None), id="two values: at least the smaller"),
        pytest.param(100, 0.95, (90.0, 100.0), id="both sides"),
        pytest.param(3, 0.05, (None, 2.0), id="a low quantile is at most so much"),
    ],
)
def test_bounds_exist_at_any_count(n, q, bounds):
    assert quantile_bounds(np.arange(1.0, n + 1.0), q) == bounds
