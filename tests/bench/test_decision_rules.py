"""The promised error rates, on simulated machines (fewer trials than the script's default)."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "decision_rules.py"


@pytest.fixture(scope="module")
def rules():
    spec = importlib.util.spec_from_file_location("decision_rules", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["decision_rules"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("profile", ["quiet", "typical"])
def test_three_percent_threshold(rules, profile):
    d = rules.pair_ratios(rules.PROFILES[profile], 500, "median", seed=1)
    unchanged = rules.rates(d, 0.03, 0.0)
    assert unchanged["regressed"] <= 0.01
    assert unchanged["pairs"] <= 6
    assert rules.rates(d, 0.03, 0.03)["regressed"] >= 0.95


def test_noise_ends_inconclusive_not_in_a_silent_pass(rules):
    d = rules.pair_ratios(rules.PROFILES["noisy"], 300, "median", seed=2)
    assert rules.rates(d, 0.03, 0.0)["regressed"] <= 0.02
    missed = rules.rates(d, 0.03, 0.03)
    assert missed["inconclusive"] > missed["pass"]


def test_pooled_steps_would_have_alarmed(rules):
    assert rules.pooled_steps_trap(rules.PROFILES["typical"], 100, seed=3) > 0.3


def test_a_steady_drift_does_not_fool_abba(rules):
    found = rules.drift_trap(200, seed=4, slope=0.5)
    assert found["ABBA, this rule"] == 0.0
    assert found["blocked, this rule"] > 0.9


def test_two_speeds_are_named_and_noise_is_not(rules):
    found = rules.bimodality(500, seed=5)
    assert found["one mode"] <= 0.02
    assert found["two modes"] >= 0.9


def test_the_history_screen_is_quiet_and_sees_ten_percent(rules):
    found = rules.history_screen(rules.PROFILES["typical"], 100, seed=6)
    assert found["0%"] <= 0.04
    assert found["10%"] >= 0.98
