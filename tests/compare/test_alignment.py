import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.compare import alignment
from pinchpoint.compare.alignment import NO_NAME, NO_PARTNER, Sequence, align


def _sequence(kernels, operators=None, categories=None):
    kernels = np.array(kernels, np.int64)
    operators = kernels if operators is None else np.array(operators, np.int64)
    categories = np.zeros(len(kernels), np.int64) if categories is None else np.array(categories)
    return Sequence(kernels, operators, categories)


LAYER = [1, 2, 3, 4, 2, 5]


def test_the_same_step_matches_itself():
    s = _sequence(LAYER * 4)
    assert align(s, s).tolist() == list(range(24))


def test_inserted_layers_do_not_shift_the_rest():
    a, b = [9, *LAYER * 3, 8], [9, *LAYER * 5, 8]
    partner = align(_sequence(a), _sequence(b))
    assert (partner != NO_PARTNER).all()
    assert partner[-1] == len(b) - 1
    assert (np.diff(partner) > 0).all()


def test_an_operation_that_went_leaves_its_neighbours_alone():
    partner = align(_sequence([1, 2, 7, 3, 4]), _sequence([1, 2, 3, 4]))
    assert partner.tolist() == [0, 1, NO_PARTNER, 2, 3]


def test_another_kernel_of_the_same_operator_is_a_partner():
    a = _sequence([1, 2, 3], [10, 11, 12])
    b = _sequence([1, 99, 3], [10, 11, 12])
    assert align(a, b).tolist() == [0, 1, 2]


def test_the_better_partner_wins():
    a = _sequence([5], [10])
    b = _sequence([6, 5], [10, 10])
    assert align(a, b).tolist() == [1]


def test_without_operators_the_kind_of_work_decides():
    a = _sequence([1, 2], [NO_NAME] * 2, [0, 1])
    b = _sequence([7, 8], [NO_NAME] * 2, [0, 1])
    assert align(a, b).tolist() == [0, 1]
    c = _sequence([7, 8], [NO_NAME] * 2, [2, 3])
    assert align(a, c).tolist() == [NO_PARTNER] * 2


def test_nothing_on_one_side():
    assert align(_sequence([]), _sequence([1])).tolist() == []
    assert align(_sequence([1, 2]), _sequence([])).tolist() == [NO_PARTNER] * 2


steps = st.lists(st.integers(0, 6), max_size=40)


@given(steps, steps)
def test_partners_are_in_order_and_of_one_kind(a, b):
    partner = align(_sequence(a), _sequence(b))
    has = np.flatnonzero(partner != NO_PARTNER)
    assert (np.diff(partner[has]) > 0).all()
    assert [a[i] for i in has] == [b[j] for j in partner[has]]


@given(steps, steps)
def test_as_many_partners_as_the_longest_common_subsequence(a, b):
    found = int((align(_sequence(a), _sequence(b)) != NO_PARTNER).sum())
    best = np.zeros((len(a) + 1, len(b) + 1), int)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            best[i + 1, j + 1] = max(best[i, j + 1], best[i + 1, j], best[i, j] + (x == y))
    assert found == best[-1, -1]


@pytest.mark.parametrize("cells", [0, 100])
def test_long_steps_are_cut_at_what_is_unique(monkeypatch, cells):
    monkeypatch.setattr(alignment, "MOST_CELLS", cells)
    monkeypatch.setattr(alignment, "ANCHOR_LENGTH", 3)
    rng = np.random.default_rng(0)
    a = rng.permutation(300)
    b = np.concatenate([a[:100], [999] * 5, a[100:220], a[240:]])
    partner = align(_sequence(a), _sequence(b))
    assert (partner != NO_PARTNER).sum() == 280
    assert partner[99] == 99
    assert partner[100] == 105
    assert partner[299] == len(b) - 1


def test_repeated_work_beyond_the_limit_is_matched_by_count(monkeypatch):
    monkeypatch.setattr(alignment, "MOST_CELLS", 10)
    partner = align(_sequence([1, 2] * 20), _sequence([2, 1] * 15))
    assert (partner != NO_PARTNER).sum() == 30
