from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import TraceBuilder
from pinchpoint.analysis.host import ancestry
from pinchpoint.analysis.host.ancestry import (
    above,
    depths,
    nearest,
    numbered,
    outermost,
    parents,
    subtree_sums,
)


def test_the_innermost_wanted_row_is_found_and_a_row_encloses_itself():
    parent = np.array([5, 0, 1, 2, 5])  # a chain 0 <- 1 <- 2 <- 3, and 4 alone; 5 is nobody
    wanted = np.array([True, False, True, False, False])
    assert nearest(parent, wanted).tolist() == [0, 0, 2, 2, 5]


def test_a_deep_stack_is_followed_to_its_end():
    depth = 1000
    parent = np.append([depth], np.arange(depth - 1))
    wanted = np.zeros(depth, np.bool_)
    wanted[0] = True
    assert np.all(nearest(parent, wanted) == 0)


def test_rows_without_a_parent_point_past_the_end():
    b = TraceBuilder()
    b.op("outer", 0, 10)
    b.op("inner", 1, 2)
    b.op("alone", 20, 2)
    assert parents(b.trace().host_ops).tolist() == [3, 0, 3]


def test_above_leaves_out_the_row_itself():
    parent = np.array([3, 0, 1])
    assert above(parent, np.array([True, True, False])).tolist() == [3, 0, 1]


def test_depths_and_subtree_sums_of_a_small_tree():
    parent = np.array([5, 0, 1, 0, 5])
    assert depths(parent).tolist() == [0, 1, 2, 1, 0]
    assert subtree_sums(parent, np.array([1, 10, 100, 1000, 7])).tolist() == [
        1111,
        110,
        100,
        1000,
        7,
    ]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), st.data())
def test_subtree_sums_agree_with_walking_up(values, data):
    n = len(values)
    parent = np.array([data.draw(st.sampled_from([n, *range(i)])) for i in range(n)])
    expected = [0] * n
    for row, value in enumerate(values):
        at = row
        while at != n:
            expected[at] += value
            at = parent[at]
    assert subtree_sums(parent, np.array(values)).tolist() == expected


def test_recursion_is_counted_at_its_outermost_call():
    group = np.array([1, 2, 1, 1, 1])
    start, end = np.array([0, 1, 2, 6, 20]), np.array([10, 9, 4, 8, 22])
    assert outermost(group, start, end).tolist() == [True, True, False, False, True]


def test_times_too_far_apart_for_the_ranges_of_groups():
    start, end = np.array([0, 1, 0, 2]), np.array([1 << 60, 5, 1 << 60, 1 << 60])
    assert outermost(np.array([0, 0, 9, 8]), start, end).tolist() == [True, False, True, True]


def test_equal_rows_count_once():
    assert outermost(np.zeros(2, int), np.array([5, 5]), np.array([9, 9])).tolist() == [True, False]


@given(st.lists(st.integers(0, 10**6), max_size=40))
def test_numbering_keeps_order_and_equality(keys):
    places = sorted(set(keys))
    assert numbered(np.array(keys, np.int64)).tolist() == [places.index(k) for k in keys]


def test_close_keys_are_numbered_by_counting():
    assert numbered(np.array([7, 3, 3, 900])).tolist() == [1, 0, 0, 2]


@pytest.mark.skipif(ancestry.compiled is None, reason="installed without a compiler")
@given(st.lists(st.tuples(st.integers(-9, 9), st.booleans()), max_size=40), st.data())
def test_compiled_and_plain_walks_are_one(rows, data):
    n = len(rows)
    parent = np.array([data.draw(st.sampled_from([n, *range(i)])) for i in range(n)], np.int64)
    values = np.array([value for value, _ in rows], np.int64)
    wanted = np.array([wants for _, wants in rows], np.bool_)
    walked = [nearest(parent, wanted), depths(parent), subtree_sums(parent, values)]
    with patch.object(ancestry, "compiled", None):
        plain = [nearest(parent, wanted), depths(parent), subtree_sums(parent, values)]
    assert [w.tolist() for w in walked] == [p.tolist() for p in plain]


def test_a_row_before_the_one_around_it_is_followed_as_well():
    parent = np.array([2, 3, 3])  # 0 is inside of 2, which stands behind it
    assert nearest(parent, np.array([False, False, True])).tolist() == [2, 3, 2]
    assert depths(parent).tolist() == [1, 0, 0]
    assert subtree_sums(parent, np.array([1, 10, 100])).tolist() == [1, 10, 101]
