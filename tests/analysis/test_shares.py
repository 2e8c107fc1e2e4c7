import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.analysis.statistics import rounded_mean, share_out


def test_the_largest_remainders_get_what_rounding_lost():
    assert share_out(np.array([10, 11, 12]), 3, 11).tolist() == [3, 4, 4]


def test_a_total_that_is_not_the_mean_is_refused():
    with pytest.raises(ValueError, match="not the mean"):
        share_out(np.array([10, 20]), 2, 40)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=20), st.integers(1, 50))
def test_shares_add_up_and_stay_within_one(sums, n):
    total = rounded_mean(sum(sums), n)
    shares = share_out(np.array(sums), n, total)
    assert int(shares.sum()) == total
    assert all(s // n <= share <= s // n + 1 for s, share in zip(sums, shares, strict=True))
