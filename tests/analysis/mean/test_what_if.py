"""What a gain counts from: the step that is said."""

import pytest

from pinchpoint.analysis.mean.what_if import _counted_from
from pinchpoint.analysis.replay.predict import Prediction


@pytest.mark.parametrize(
    ("replayed_ns", "after_ns", "said_ns", "wanted_ns"),
    [(940, 939, 1000, 999), (1100, 950, 1000, 950), (1000, 700, 1000, 700)],
    ids=["a shorter mean is no gain", "what exceptions took is gone", "the same mean"],
)
def test_a_mean_that_differs_from_the_step_that_is_said(replayed_ns, after_ns, said_ns, wanted_ns):
    found = _counted_from(Prediction(after_ns, (after_ns, after_ns), replayed_ns), said_ns)
    assert (found.step_ns, found.range_ns, found.base_ns) == (wanted_ns, (wanted_ns,) * 2, said_ns)
