import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pinchpoint.trace.arrays import distinct_rows, whole

SMALL = st.integers(-3, 3)
LARGE = st.sampled_from((-(2**63), -1, 0, 7, 2**63 - 1))


@pytest.mark.parametrize("values", [SMALL, LARGE], ids=["packed", "ranked"])
@given(st.data())
def test_the_same_as_sorting_rows(values, data):
    grid = data.draw(arrays(np.int64, st.tuples(st.integers(0, 20), st.just(3)), elements=values))
    rows, which = distinct_rows(*grid.T)
    assert list(map(tuple, rows.tolist())) == sorted(set(map(tuple, grid.tolist())))
    assert (rows[which] == grid).all()


def test_more_combinations_than_a_number_holds():
    columns = [np.arange(200) % 100 * 2**56 for _ in range(10)]
    rows, which = distinct_rows(*columns)
    assert len(rows) == 100
    assert (rows[which] == np.stack(columns, axis=1)).all()


def test_floats_beyond_64_bits_end_at_their_ends():
    ends = np.iinfo(np.int64)
    given = np.array([np.nan, np.inf, 1e300, 2.0**63, -np.inf, -1e300, 1.7])
    known = [0, ends.max, ends.max, ends.max, ends.min, ends.min, 1]
    assert whole(given).tolist() == known
