"""Ranges of predictions whose doubts can be added up by hand."""

import numpy as np
import pytest

from pinchpoint.analysis.replay.ranges import (
    AFTER_A_FIX,
    AS_IT_IS,
    ONE_STEP_RATIO,
    Doubtful,
    Made,
    error_of_mean,
    most_doubtful,
    range_ns,
)

MS = 1_000_000


def made(step_ms, device_ms, **more):
    facts = {"changed_device_ns": 0.0, "sampling_ns": 0.0}
    return Made(step_ms * MS, device_ms * MS, **facts | more)


def test_a_busy_device_leaves_little_doubt():
    low, high = range_ns(made(100, 100), AS_IT_IS)
    assert (low, high) == pytest.approx((97 * MS, 103 * MS))


def test_work_that_took_longer_in_one_step_than_in_another_leaves_more():
    low, high = range_ns(made(100, 100, uneven_ns=10.0 * MS), AS_IT_IS)
    off = (3**2 + 10**2) ** 0.5
    assert (low, high) == pytest.approx(((100 - off) * MS, (100 + off) * MS))


def test_independent_doubts_add_up_as_squares():
    low, high = range_ns(made(100, 0, sampling_ns=10 * MS), AS_IT_IS)
    assert high == pytest.approx((100 + (30**2 + 10**2) ** 0.5) * MS)
    assert low == pytest.approx((100 - (30**2 + 10**2) ** 0.5) * MS)


def test_a_host_in_doubt_cannot_make_a_step_shorter_than_the_work_of_the_device():
    low, _ = range_ns(made(100, 60, recording_ns=200.0 * MS), AFTER_A_FIX)
    assert low == pytest.approx(60 * 0.94 * MS)


def test_work_that_a_fix_makes_faster_is_less_certain():
    firm = range_ns(made(100, 100), AFTER_A_FIX)
    changed = range_ns(made(100, 100, changed_device_ns=100.0 * MS), AFTER_A_FIX)
    assert changed[0] < firm[0] < firm[1] < changed[1]


def test_few_steps_that_differ_leave_a_mean_shorter_than_the_work_of_the_device():
    low, _ = range_ns(made(100, 100, sampling_ns=60 * MS), AS_IT_IS)
    assert low == pytest.approx((100 - (3**2 + 60**2) ** 0.5) * MS)


def test_what_recording_cost_is_an_estimate():
    low, high = range_ns(made(100, 100, recording_ns=100.0 * MS), AS_IT_IS)
    assert high - 100 * MS == pytest.approx((3**2 + 15**2) ** 0.5 * MS)
    assert low == pytest.approx(97 * MS)  # but never below the device's work


@pytest.mark.parametrize(
    ("periods", "error"), [([10, 10, 10], 0.0), ([10, 30], 63.1), ([40], 40 * ONE_STEP_RATIO)]
)
def test_steps_that_differ_say_less_about_their_mean(periods, error):
    # Student's 95th percentile for one degree of freedom is 6.31; the error of 10 and 30 is 10.
    assert error_of_mean(np.array(periods, np.int64)) == pytest.approx(error)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, None),
        ({"sampling_ns": 30.0 * MS}, Doubtful.FEW_STEPS),
        ({"recording_ns": 200.0 * MS}, Doubtful.RECORDING),
        ({"device_ms": 5}, Doubtful.HOST),
        ({"uneven_ns": 30.0 * MS}, Doubtful.DEVICE),
    ],
)
def test_what_leaves_most_doubt_is_named(more, why):
    of = made(100, **{"device_ms": 90} | more)
    assert most_doubtful(of, AS_IT_IS) == why


def test_a_mean_is_no_shorter_than_the_shortest_step():
    low, high = range_ns(made(100, 100, sampling_ns=300 * MS, shortest_ns=9 * MS), AS_IT_IS)
    assert low == pytest.approx((100 - (91**2 + 3**2) ** 0.5) * MS)
    assert high > 400 * MS
