import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.bench.ab.decision import LOOKS, abba, decide, decide_all, looks_up_to, sequential_p


def test_abba():
    assert "".join(arm for _, arm in abba(4)) == "ABBAABBA"
    assert [pair for pair, _ in abba(2)] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("d", "verdict"),
    [
        pytest.param([0.05, 0.051, 0.049, 0.05, 0.052], "regressed", id="plainly slower"),
        pytest.param([0.001, -0.001, 0.0, 0.002, -0.002], "pass", id="the same"),
        pytest.param([-0.2, -0.21, -0.19, -0.2, -0.2], "pass", id="faster"),
        pytest.param([0.3, -0.2, 0.25, -0.3, 0.1], "inconclusive", id="noise"),
        pytest.param([0.01, 0.0101, 0.0099, 0.01, 0.01], "pass", id="real, under half"),
        pytest.param([0.0, 0.0, 0.0, 0.0, 0.0], "pass", id="identical"),
        pytest.param([0.05, 0.05, 0.05, 0.05, 0.05], "regressed", id="no spread"),
        pytest.param([0.5], "inconclusive", id="one pair decides nothing"),
    ],
)
def test_verdicts_at_3_percent(d, verdict):
    assert decide(np.array(d), 0.03).verdict == verdict


def test_estimate_is_of_the_ratio():
    decision = decide(np.log([1.1, 1.1, 1.1, 1.1, 1.1]), 0.05)
    assert decision.estimate_ratio == pytest.approx(0.1)
    assert decision.ci95_ratio == pytest.approx((0.1, 0.1))
    assert decision.smallest_visible_ratio == pytest.approx(0.0, abs=1e-9)


def test_the_error_is_spent_over_the_looks():
    scipy = pytest.importorskip("scipy.stats", reason="scipy is the oracle")
    d = np.random.default_rng(0).normal(0.01, 0.02, 10)
    p5 = scipy.ttest_1samp(d[:5], 0, alternative="greater").pvalue
    p10 = scipy.ttest_1samp(d, 0, alternative="greater").pvalue
    assert sequential_p(d[:5]) == pytest.approx(min(1.0, p5 / 0.2))
    assert sequential_p(d) == pytest.approx(min(1.0, p5 / 0.2, p10 / 0.3))


@pytest.mark.parametrize(
    ("cap", "looks"), [(3, (3,)), (5, (5,)), (7, (5, 7)), (20, LOOKS), (40, (5, 10, 20, 40))]
)
def test_looks_end_at_the_cap(cap, looks):
    assert looks_up_to(cap) == looks


def test_holm_over_gated_metrics():
    d = np.array([0.02, 0.024, 0.017, 0.025, 0.019])
    alone = decide(d, 0.03)
    assert alone.verdict == "regressed"
    quiet = np.zeros(5)
    many = decide_all(
        {"a": d} | {f"m{i}": quiet for i in range(200)},
        dict.fromkeys(["a", *(f"m{i}" for i in range(200))], 0.03),
    )
    assert many["a"].p > alone.p
    assert many["a"].verdict != "regressed"


@given(st.lists(st.floats(-0.5, 0.5), min_size=5, max_size=20))
def test_an_improvement_never_regresses(values):
    d = -np.abs(np.array(values))
    assert decide(d, 0.03).verdict != "regressed"


@given(st.lists(st.floats(-0.2, 0.2), min_size=2, max_size=20))
def test_scaling_both_arms_changes_nothing(values):
    a = np.full(len(values), 3.0)
    b = a * np.exp(values)
    assert decide(np.log(b / a), 0.03).verdict == decide(np.log((7 * b) / (7 * a)), 0.03).verdict
