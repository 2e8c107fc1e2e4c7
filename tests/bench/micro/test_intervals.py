"""The promised coverage, on simulated noise (fewer trials than the script's default)."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from pinchpoint.bench.statistics.intervals import neighbouring_batches_alike, widest_batch_interval

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "micro_intervals.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("micro_intervals", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["micro_intervals"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "noise",
    ["white 0.5 %", "neighbours alike 0.9", "level wanders 0.1 % over 20 samples"],
)
def test_nine_of_ten_intervals_cover_although_the_rule_looks_at_them(script, noise):
    found = script.coverage(script.NOISES[noise], 0.005, trials=120, seed=1)
    assert found["covered"] >= 0.9


def test_looking_all_the_time_would_not_have(script):
    noise = script.NOISES["neighbours alike 0.9"]
    assert script.coverage(noise, 0.005, trials=60, seed=2)["without care"] < 0.8


def test_the_clock_sets_a_least_width():
    low, high = widest_batch_interval(np.full(40, 100.0), least_ratio=0.01)
    assert (low, high) == pytest.approx((99.0, 101.0), rel=1e-3)
    assert widest_batch_interval(np.full(19, 100.0)) is None


def test_a_series_too_short_for_its_slow_changes():
    assert neighbouring_batches_alike(np.exp(np.linspace(0, 0.01, 100)))
    assert not neighbouring_batches_alike(np.tile([1.0, 1.01], 50))
