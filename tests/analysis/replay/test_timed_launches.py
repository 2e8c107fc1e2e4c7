"""Steps timed while CUPTI was loaded, in traces whose replay is known beforehand."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.mean.mean_step import mean_range_ns, mean_without_profiler_ns
from pinchpoint.analysis.mean.what_if import why_not_closer
from pinchpoint.analysis.replay.predict import (
    corrected_range_ns,
    corrected_step_ns,
    launches_ns,
    least_by_launches_ns,
    timed_ns,
)
from pinchpoint.analysis.replay.ranges import Doubtful
from pinchpoint.analysis.replay.window import clean_window
from pinchpoint.trace import ApiKind, LaunchTimes, RunFacts, Source

US = 1_000
OF_ANOTHER = Source("a", "test", recorder="other")  # nothing is taken out: replay is the recording


def launching(**facts):
    """Steps of ten launches, one each 20 µs of the host."""
    b = TraceBuilder()
    for i in range(6):
        b.step(i, 200 * i * US, 200 * US)
        for at in range(200 * i, 200 * (i + 1), 20):
            b.launch(at * US, 5 * US, "work", (at + 8) * US, US)
    return b.trace(**facts)


def waiting(**facts):
    """Steps of ten kernels of 100 µs, for which the host waits before the next step."""
    b = TraceBuilder()
    for i in range(6):
        start = 1010 * i
        b.step(i, start * US, 1010 * US)
        for n in range(10):
            b.launch((start + 20 * n) * US, 5 * US, "work", (start + 8 + 100 * n) * US, 100 * US)
        b.api("cudaDeviceSynchronize", (start + 190) * US, 820 * US, kind=ApiKind.SYNC_DEVICE)
    return b.trace(**facts)


def timed(trace, us, launch=None):
    return replace(
        trace, run=RunFacts(unprofiled_step_ns=tuple(round(u * US) for u in us), launch=launch)
    )


MORE = LaunchTimes(8_000, 13_000)  # 5 µs: ten launches make a step of 200 one of 250


def test_what_launches_cost_more_is_taken_out_of_a_step_that_they_bound():
    trace = timed(launching(source=OF_ANOTHER), [250] * 20, MORE)
    assert launches_ns(trace) == pytest.approx(50 * US, rel=0.01)
    assert corrected_step_ns(trace) == pytest.approx(200 * US, rel=0.01)
    low, high = corrected_range_ns(trace)  # what was taken out is as doubtful as the host's time
    assert (200 * US - low, high - 200 * US) == pytest.approx((15 * US, 15 * US), rel=0.05)
    assert why_not_closer(trace) is None


def test_a_step_that_the_device_bounds_stays():
    trace = timed(waiting(source=OF_ANOTHER), [1010] * 20, MORE)
    assert launches_ns(trace) <= 5 * US  # the first launch of a step finds an idle device
    assert corrected_step_ns(trace) >= 1005 * US


def test_steps_from_before_the_profiler_first_ran_stay():
    steps = [200] * 10 + [250] * 10
    trace = timed(launching(source=OF_ANOTHER), steps, replace(MORE, unloaded_steps=10))
    assert timed_ns(trace)[:10] == (200 * US,) * 10
    assert timed_ns(trace)[10:] == pytest.approx((200 * US,) * 10, rel=0.01)


def test_a_long_step_has_no_more_launches_and_a_short_one_no_negative_time():
    trace = timed(launching(source=OF_ANOTHER), [250] * 17 + [2250, 25, 0], MORE)
    long, short, none = timed_ns(trace)[-3:]
    assert long == pytest.approx(2200 * US, rel=0.01)
    assert short == pytest.approx(20 * US, rel=0.01)
    assert none == 0


def test_the_mean_step_is_taken_down_with_them():
    trace = timed(launching(source=OF_ANOTHER), [250] * 18 + [650] * 2, MORE)
    assert mean_without_profiler_ns(trace) == pytest.approx(240 * US, rel=0.01)
    low, high = mean_range_ns(trace)
    assert low < 240 * US < high


@pytest.mark.parametrize(
    "launch", [LaunchTimes(8_000, 8_000), LaunchTimes(9_000, 8_000)], ids=["the same", "less"]
)
def test_launches_that_cost_no_more_change_nothing(launch):
    trace = timed(launching(source=OF_ANOTHER), [250] * 20, launch)
    assert corrected_step_ns(trace) == 250 * US
    assert corrected_range_ns(trace) == (250 * US, 250 * US)


def test_where_nothing_was_measured_the_step_stays_and_the_range_reaches_both():
    alone = clean_window(launching()).mean_ns / US
    trace = timed(launching(), [alone + 60] * 20)  # 6 µs for each of ten launches
    least = least_by_launches_ns(trace)
    assert least == pytest.approx(alone * US, rel=0.02)
    assert corrected_step_ns(trace) == pytest.approx((alone + 60) * US, abs=1)
    assert corrected_range_ns(trace)[0] == least
    assert why_not_closer(trace) is Doubtful.LAUNCHES


def test_launches_do_not_explain_any_difference():
    alone = clean_window(launching()).mean_ns / US
    trace = timed(launching(), [alone + 600] * 20)  # 60 µs for each of ten launches
    assert least_by_launches_ns(trace) is None
    assert why_not_closer(trace) is None


@pytest.mark.parametrize("more_us", [-10, 5])
def test_a_step_that_the_recording_does_not_have_shorter_stays(more_us):
    alone = clean_window(launching()).mean_ns / US
    trace = timed(launching(), [alone + more_us] * 20)
    assert least_by_launches_ns(trace) is None
