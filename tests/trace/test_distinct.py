import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pinchpoint.trace.arrays import distinct, distinct_rows, whole

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


COLUMNS = st.sampled_from((np.int64, np.int32, np.uint8, np.bool_, np.float64)).flatmap(
    lambda kind: arrays(kind, st.integers(0, 30))
)


@given(COLUMNS)
def test_distinct_values_are_those_of_numpy(values):
    assert np.array_equal(distinct(values), np.unique(values), equal_nan=values.dtype.kind == "f")


def test_lists_and_nothing():
    assert distinct([3, 1, 3]).tolist() == [1, 3]
    assert distinct(["b", "a", "b"]).tolist() == ["a", "b"]
    assert distinct([]).tolist() == []
    assert distinct(np.array([[2, 1], [1, 2]])).tolist() == [1, 2]
