import pytest

from pinchpoint.bench.statistics.distributions import holm, pairs_needed, power_of, smallest_visible


@pytest.mark.parametrize(
    ("sd", "needed"),
    [
        (0.003, [5, 4, 3, 3, 3]),
        (0.01, [19, 8, 5, 4, 3]),
        (0.02, [67, 19, 11, 6, 4]),
        (0.05, [None, 104, 48, 20, 8]),
    ],
)
def test_pairs_needed_for_1_2_3_5_and_10_percent(sd, needed):
    assert [pairs_needed(e, sd) for e in (0.01, 0.02, 0.03, 0.05, 0.10)] == needed


def test_smallest_visible_effect_in_sds():
    seen = [smallest_visible(0.01, n) for n in (3, 5, 10, 20)]
    assert seen == pytest.approx([0.0733, 0.0285, 0.0151, 0.0096], abs=1e-4)


def test_power_grows_with_pairs():
    assert power_of(0.03, 0.02, 20) > power_of(0.03, 0.02, 10) > power_of(0.03, 0.02, 5)


def test_no_noise_needs_the_floor():
    assert pairs_needed(0.03, 0.0) == 3


def test_holm():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
