"""What a gain counts from: the step that is said."""

import pytest

from pinchpoint.analysis.mean.what_if import _counted_from, _of_the_step_said
from pinchpoint.analysis.replay.predict import Prediction


@pytest.mark.parametrize(
    ("replayed_ns", "after_ns", "said_ns", "wanted_ns"),
    [(940, 939, 1000, 999), (1100, 950, 1000, 950), (1000, 700, 1000, 700)],
    ids=["a shorter mean is no gain", "what exceptions took is gone", "the same mean"],
)
def test_a_mean_that_differs_from_the_step_that_is_said(replayed_ns, after_ns, said_ns, wanted_ns):
    found = _counted_from(Prediction(after_ns, (after_ns, after_ns), replayed_ns), said_ns)
    assert (found.step_ns, found.range_ns, found.base_ns) == (wanted_ns, (wanted_ns,) * 2, said_ns)


@pytest.mark.parametrize(
    ("said_ns", "after_ns"),
    [(800, 720), (1000, 900), (1500, 1400)],
    ids=["shorter", "as", "longer"],
)
def test_a_gain_on_a_cpu_counts_from_the_step_that_is_said(said_ns, after_ns):
    typical = Prediction(900, (850, 950), 1000, 900, 800)  # a tenth of the recorded step
    found = _of_the_step_said(typical, said_ns)
    assert (found.step_ns, found.base_ns) == (after_ns, said_ns)
    low, high = found.range_ns
    assert found.bound_ns <= low < after_ns < high < said_ns
