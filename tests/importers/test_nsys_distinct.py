import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pinchpoint.importers.nsys.distinct import distinct_rows

SMALL = st.integers(-3, 3)
LARGE = st.sampled_from((-(2**63), -1, 0, 7, 2**63 - 1))


@pytest.mark.parametrize("values", [SMALL, LARGE], ids=["packed", "too-wide"])
@given(st.data())
def test_the_same_as_sorting_rows(values, data):
    grid = data.draw(arrays(np.int64, st.tuples(st.integers(0, 20), st.just(3)), elements=values))
    rows, which = distinct_rows(*grid.T)
    assert list(map(tuple, rows.tolist())) == sorted(set(map(tuple, grid.tolist())))
    assert (rows[which] == grid).all()
