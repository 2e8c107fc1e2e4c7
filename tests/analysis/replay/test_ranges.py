"""Ranges of predictions whose doubts can be added up by hand."""

import numpy as np
import pytest

from pinchpoint.analysis.replay.ranges import (
    AFTER_A_FIX,
    AS_IT_IS,
    ONE_STEP_RATIO,
    Made,
    range_ns,
    standard_error,
)

MS = 1_000_000


def made(step_ms, device_ms, **more):
    facts = {"changed_device_ns": 0.0, "sampling_ns": 0.0}
    return Made(step_ms * MS, device_ms * MS, **facts | more)


def test_a_busy_device_leaves_little_doubt():
    low, high = range_ns(made(100, 100), AS_IT_IS)
    assert (low, high) == pytest.approx((92.5 * MS, 107.5 * MS))


def test_independent_doubts_add_up_as_squares():
    low, high = range_ns(made(100, 0, sampling_ns=10 * MS), AS_IT_IS)
    assert high == pytest.approx((100 + (30**2 + 10**2) ** 0.5) * MS)
    assert low == pytest.approx((100 - (30**2 + 10**2) ** 0.5) * MS)


def test_a_host_in_doubt_cannot_make_a_step_shorter_than_the_work_of_the_device():
    low, _ = range_ns(made(100, 60, recording_ns=200.0 * MS), AFTER_A_FIX)
    assert low == pytest.approx(60 * 0.925 * MS)


def test_work_that_a_fix_makes_faster_is_less_certain():
    firm = range_ns(made(100, 100), AFTER_A_FIX)
    changed = range_ns(made(100, 100, changed_device_ns=100.0 * MS), AFTER_A_FIX)
    assert changed[0] < firm[0] < firm[1] < changed[1]


def test_what_recording_cost_is_an_estimate():
    low, high = range_ns(made(100, 100, recording_ns=100.0 * MS), AS_IT_IS)
    assert high - 100 * MS == pytest.approx((7.5**2 + 15**2) ** 0.5 * MS)
    assert low == pytest.approx(92.5 * MS)  # but never below the device's work


@pytest.mark.parametrize(
    ("periods", "error"), [([10, 10, 10], 0.0), ([10, 30], 10.0), ([40], 40 * ONE_STEP_RATIO)]
)
def test_steps_that_differ_say_less_about_their_mean(periods, error):
    assert standard_error(np.array(periods, np.int64)) == pytest.approx(error)
