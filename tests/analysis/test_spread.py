import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.analysis.statistics import Spread, percentile, spread


def test_numbers_of_ten_values():
    assert spread(np.arange(10, 0, -1)) == Spread(10, 1, 5, 9, 10)


def test_nothing_has_no_spread():
    assert spread(np.zeros(0, np.int64)) is None


@given(st.lists(st.integers(0, 100), min_size=1))
def test_nine_of_ten_do_not_exceed_p90(values):
    s = spread(np.array(values))
    assert s is not None
    assert sum(v <= s.p90 for v in values) * 10 >= 9 * len(values)
    assert {s.least, s.median, s.p90, s.most} <= set(values)


@given(
    st.lists(st.integers(-(2**40), 2**40), min_size=1) | st.lists(st.floats(-1e9, 1e9), min_size=1),
    st.sampled_from([0, 10, 25, 50, 90, 100]),
)
def test_percentiles_are_those_of_numpy(values, percent):
    assert percentile(values, percent) == float(np.percentile(values, percent))
