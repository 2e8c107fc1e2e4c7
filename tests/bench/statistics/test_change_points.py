import numpy as np
import pytest

from pinchpoint.bench.statistics.series import change_points


def _history(*levels, sd=1.0, seed=3):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(level, sd, n) for level, n in levels])


def test_a_step_is_found_where_it_is():
    [point] = change_points(_history((100, 40), (105, 20)))
    assert point.at == 40
    assert point.change_ratio == pytest.approx(0.05, abs=0.01)


def test_two_steps():
    found = change_points(_history((100, 30), (110, 30), (100, 30)))
    assert [p.at for p in found] == [30, 60]


@pytest.mark.parametrize(
    "history",
    [
        pytest.param(_history((100, 60)), id="unchanged"),
        pytest.param(_history((100, 30), (101, 30), sd=0.1), id="sure, but under two per cent"),
        pytest.param(np.r_[_history((100, 30)), 150.0], id="one odd session"),
        pytest.param(np.ones(2), id="too short"),
        pytest.param(np.ones(30), id="constant"),
    ],
)
def test_no_change(history):
    assert change_points(history) == ()


def test_false_points_are_rare():
    rng = np.random.default_rng(11)
    alarms = sum(change_points(rng.normal(100, 1.5, 60)) != () for _ in range(150))
    assert alarms <= 3
