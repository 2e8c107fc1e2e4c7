"""What a timed step takes beyond its replay, and what a fix leaves of it."""

from dataclasses import replace

import numpy as np
import pytest

from loader_steps import loading
from pinchpoint.analysis.replay.beyond_replay import (
    Replayed,
    of_timed_ns,
    waits_beyond_ns,
    with_timed,
)
from pinchpoint.analysis.replay.window import replayable
from pinchpoint.trace import RunFacts

BEFORE = Replayed(step_ns=84_000, device_ns=69_000)


def test_most_of_the_difference_is_the_hosts_and_goes_with_its_time():
    after = Replayed(step_ns=62_000, device_ns=59_000)
    # Doubts: 0.3 × 15 and 0.15 × 70 of the host, 0.03 × 69 of the device: 10.68 of 11 are its.
    said = with_timed(95_000, BEFORE, after, recording_ns=70_000)
    assert said == pytest.approx(59_000 * (1 + 0.349 / 69) + 3_000 * (1 + 10.651 / 15), rel=1e-4)


def test_of_a_device_that_hardly_waits_it_is_the_devices():
    before, after = Replayed(100_000, 99_000), Replayed(50_500, 50_000)
    said = with_timed(105_000, before, after, recording_ns=0)
    assert said == pytest.approx(50_000 * 103.95 / 99 + 500 * 1.05, rel=1e-3)


@pytest.mark.parametrize(
    ("timed", "before", "after", "said"),
    [
        (80_000, BEFORE, Replayed(42_000, 42_000), 40_000),
        (20_000, Replayed(10_000, 0), Replayed(4_000, 0), 8_000),
        (20_000, Replayed(10_000, 10_000), Replayed(4_000, 4_000), 8_000),
        (95_000, BEFORE, BEFORE, 95_000),
        (95_000, BEFORE, Replayed(90_000, 20_000), 95_000),
    ],
    ids=["shorter than its replay", "no device", "no host", "no change", "never longer"],
)
def test_else_all_of_the_step_is_scaled_alike(timed, before, after, said):
    assert with_timed(timed, before, after, recording_ns=0) == pytest.approx(said)


@pytest.mark.parametrize(
    ("more_ns", "left_ratio", "said_ns"),
    [(9_000_000, 0.0, 6_000_000), (4_000_000, 0.0, 4_000_000), (9_000_000, 0.5, 3_000_000)],
    ids=["the waits' part", "no more than there is", "half of the waits stay"],
)
def test_waits_that_the_run_timed_take_what_the_mean_has_more(more_ns, left_ratio, said_ns):
    """Waits of 20, 20 and 38 ms: 26 on average, 6 more than usual."""
    trace = loading([20.0] * 6, workers=2)
    waits = (20_000_000, 20_000_000, 38_000_000)
    trace = replace(trace, run=RunFacts(data_wait_ns=waits))
    before = replayable(trace).graph
    left = (before.batch_wait_ns * left_ratio).astype(np.int64)
    said = waits_beyond_ns(trace, more_ns, before, replace(before, batch_wait_ns=left))
    assert said == pytest.approx(said_ns, rel=1e-3)


def test_without_timed_waits_nothing_is_known_of_them():
    trace = loading([20.0] * 6, workers=2)
    before = replayable(trace).graph
    after = replace(before, batch_wait_ns=before.batch_wait_ns * 0)
    assert waits_beyond_ns(trace, 9e6, before, after) == 0


@pytest.mark.parametrize(
    ("timed", "leaves", "saving", "won"),
    [
        (80_000, 69_000, 15_000, 11_000),
        (80_000, 60_000, 15_000, 9_000 + 6_000 * 11 // 15),
        (65_000, 69_000, 15_000, 0),
        (65_000, 40_000, 15_000, 15_000),
        (84_000, 69_000, 15_000, 15_000),
        (99_000, 69_000, 15_000, 15_000),
    ],
    ids=["the host's", "both", "no host is left", "the device's", "as recorded", "longer"],
)
def test_what_a_fix_takes_of_a_recorded_step_is_less_of_one_that_was_not(
    timed, leaves, saving, won
):
    assert of_timed_ns(saving, timed, BEFORE, leaves) == won
