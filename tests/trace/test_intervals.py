import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.trace import intervals as iv

spans = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda p: (p[0], p[0] + p[1])),
    max_size=12,
)


def flat(pairs):
    return iv.flatten([a for a, _ in pairs], [b for _, b in pairs])


def members(pairs):
    return {t for a, b in pairs for t in range(a, b)}


def points(a):
    return members(list(zip(a.start.tolist(), a.end.tolist(), strict=True)))


@pytest.mark.parametrize(
    ("pairs", "total"),
    [
        pytest.param([(0, 10), (10, 20)], 20, id="back to back"),
        pytest.param([(0, 10), (30, 40)], 20, id="one gap"),
        pytest.param([(0, 40), (10, 20), (60, 80)], 60, id="gap after nested"),
        pytest.param([(5, 5)], 0, id="empty interval"),
        pytest.param([], 0, id="nothing"),
    ],
)
def test_union_counts_each_instant_once(pairs, total):
    assert flat(pairs).total == total


@given(spans, spans)
def test_algebra_agrees_with_sets_of_instants(a, b):
    fa, fb = flat(a), flat(b)
    assert points(iv.intersect(fa, fb)) == members(a) & members(b)
    assert points(iv.subtract(fa, fb)) == members(a) - members(b)
    assert points(iv.union(fa, fb)) == members(a) | members(b)


@given(spans, st.integers(0, 40), st.integers(0, 40))
def test_complement_and_clip_split_the_window(a, low, length):
    high = low + length
    inside, outside = iv.clip(flat(a), low, high), iv.complement(flat(a), low, high)
    assert points(inside) | points(outside) == set(range(low, high))
    assert not points(inside) & points(outside)


@given(spans, st.lists(st.integers(0, 80), max_size=6))
def test_covered_before_counts_instants(a, times):
    expected = [sum(t < at for t in members(a)) for at in times]
    assert iv.covered_before(flat(a), times).tolist() == expected


@given(spans)
def test_flat_sets_are_sorted_disjoint_and_not_touching(a):
    f = flat(a)
    assert np.all(f.start < f.end)
    assert np.all(f.start[1:] > f.end[:-1])


def test_contains_starts_and_not_ends():
    spans = iv.flatten([10, 30], [20, 40])
    assert iv.contains(spans, [9, 10, 19, 20, 30, 40]).tolist() == [0, 1, 1, 0, 1, 0]
    assert not iv.contains(iv.NONE, [5]).any()
