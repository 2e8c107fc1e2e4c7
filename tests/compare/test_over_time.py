"""Series with a known change; ordinary noise is spelt out so that no test depends on chance."""

import numpy as np
import pytest

from pinchpoint.compare.over_time import chance, shifts

# Two per cent of spread, in an order that has no trend.
NOISE = np.tile([0.0, 0.02, -0.01, 0.01, -0.02, 0.015, -0.005], 10)


def series(runs, *changes):
    """10 ms with noise; each change multiplies what follows its run."""
    values = 10 * (1 + NOISE[:runs])
    for at, factor in changes:
        values[at:] *= factor
    return values


@pytest.mark.parametrize("runs", [0, 1, 5, 20, 70])
def test_noise_is_no_change(runs):
    assert shifts(series(runs)) == ()


def test_single_long_runs_are_no_change():
    values = series(70)
    values[[10, 31, 69]] *= 2
    assert shifts(values) == ()


def test_two_changes():
    found = shifts(series(70, (40, 1.1), (55, 1.2)))
    assert [shift.at for shift in found] == [40, 55]
    assert [shift.ratio for shift in found] == pytest.approx([0.1, 0.2], abs=0.01)


def test_the_newest_three_runs_are_seen_and_two_are_not():
    assert [shift.at for shift in shifts(series(40, (37, 1.2)))] == [37]
    assert shifts(series(40, (38, 1.2))) == ()


def test_a_change_below_two_per_cent_is_none():
    assert shifts(np.array([10.0] * 30 + [10.1] * 30)) == ()


def test_the_chance_is_that_of_mann_and_whitney():
    # 3 beyond all of 20: two of the C(23, 3) = 1771 orders are so extreme.
    old, new = np.arange(20.0), np.array([30.0, 31.0, 32.0])
    assert chance(old, new) == pytest.approx(2 / 1771)
    assert chance(new, old) == pytest.approx(2 / 1771)
