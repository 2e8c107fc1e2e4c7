import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.trace.intervals import NO_ROW, innermost, nest, nesting_order

INTERVALS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12)), max_size=25
)


def columns(rows):
    table = np.array(rows, np.int64).reshape(-1, 3)
    group, start, end = table[:, 0], table[:, 1], table[:, 1] + table[:, 2]
    order = nesting_order(group, start, end)
    return group[order], start[order], end[order]


@given(INTERVALS)
def test_the_parent_is_the_nearest_earlier_interval_that_encloses(rows):
    group, start, end = columns(rows)
    expected = []
    for i in range(len(start)):
        around = [j for j in range(i) if group[j] == group[i] and end[j] >= end[i]]
        expected.append(around[-1] if around else NO_ROW)
    assert nest(group, start, end).parent.tolist() == expected


@given(INTERVALS, INTERVALS)
def test_innermost_finds_the_same_for_other_intervals(rows, asked):
    nested = nest(*columns(rows))
    group, start, end = columns(asked)
    for found, g, s, e in zip(innermost(nested, group, start, end), group, start, end, strict=True):
        before = [
            j for j in range(len(nested.start)) if nested.group[j] == g and nested.start[j] <= s
        ]
        # walk outwards from the last one opened, as the stack of a thread would
        place = before[-1] if before else NO_ROW
        while place != NO_ROW and nested.end[place] < e:
            place = nested.parent[place]
        assert found == place


def test_flat_siblings_in_one_root():
    start = np.concatenate(([0], np.arange(0, 2000, 2)))
    end = np.concatenate(([2000], np.arange(1, 2001, 2)))
    parent = nest(np.zeros(1001, np.int64), start, end).parent
    assert parent[0] == NO_ROW
    assert (parent[1:] == 0).all()
