"""What a gain counts from: the step that is said."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import TraceBuilder
from exceptional_programs import now_and_then
from pinchpoint.analysis.mean.base_parts import base_parts
from pinchpoint.analysis.mean.mean_step import mean_without_profiler_ns
from pinchpoint.analysis.mean.on_cpu import slower_outside
from pinchpoint.analysis.mean.what_if import (
    _counted_from,
    _of_the_step_said,
    covered_ratio,
    what_if_mean,
)
from pinchpoint.analysis.replay import DropDeviceOps, DropSyncs, RemoveHostTime, ScaleDeviceOps
from pinchpoint.analysis.replay.predict import comes_in_bursts, corrected_step_ns, what_if
from pinchpoint.analysis.replay.prediction import Prediction
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.trace import RunFacts
from sampled_runs import EVALUATING, SAVING, sampled, samples

MS = 1_000_000
ANY = st.integers(-(10**9), 10**10)


@pytest.mark.parametrize(
    ("replayed_ns", "after_ns", "said_ns", "wanted_ns"),
    [(940, 939, 1000, 999), (1100, 950, 1000, 950), (1000, 700, 1000, 700)],
    ids=["a shorter mean is no gain", "what exceptions took is gone", "the same mean"],
)
def test_a_mean_that_differs_from_the_step_that_is_said(replayed_ns, after_ns, said_ns, wanted_ns):
    found = _counted_from(Prediction(after_ns, (after_ns, after_ns), replayed_ns), said_ns)
    assert (found.step_ns, found.range_ns, found.base_ns) == (wanted_ns, (wanted_ns,) * 2, said_ns)


@pytest.mark.parametrize(
    ("said_ns", "after_ns"),
    [(800, 720), (1000, 900), (1500, 1400)],
    ids=["shorter", "as", "longer"],
)
def test_a_gain_on_a_cpu_counts_from_the_step_that_is_said(said_ns, after_ns):
    typical = Prediction(900, (850, 950), 1000, 900, 800)  # a tenth of the recorded step
    found = _of_the_step_said(typical, said_ns)
    assert (found.step_ns, found.base_ns) == (after_ns, said_ns)
    low, high = found.range_ns
    assert found.bound_ns <= low < after_ns < high < said_ns


def test_a_gain_counts_in_proportion_where_others_made_all_steps_slower_than_the_recorded_ones():
    """A tenth of 1500 at best, and at least what the recorded steps would win."""
    typical = Prediction(900, (850, 950), 1000, 900, 800)
    found = _of_the_step_said(typical, 1500, 1.5)
    assert (found.step_ns, found.range_ns) == (1350, (1275, 1450))


@pytest.mark.parametrize(
    ("disturbed", "timed_ms", "ratio"),
    [(("busy",), 15, 1.5), ((), 15, 1.0), (("busy",), 8, 1.0)],
    ids=["others had the cores", "nobody else", "recording made steps longer"],
)
def test_how_many_times_as_long_steps_took_outside_of_the_recording(disturbed, timed_ms, ratio):
    b = TraceBuilder()
    for number in range(6):
        b.step(number, number * 10_000_000, 10_000_000)
        b.op("aten::mm", number * 10_000_000 + 1000, 8_000_000)
    trace = b.trace(api_calls=None, device_ops=None)
    timed = (timed_ms * 1_000_000,) * 9
    trace = replace(trace, devices=(), run=RunFacts(unprofiled_step_ns=timed, disturbed=disturbed))
    assert slower_outside(trace) == pytest.approx(ratio)
    parts = base_parts(trace)
    if ratio > 1:  # nothing of it is outside of the recorded steps
        assert parts.ns[-1] == 0
        assert parts.ns.sum() == timed_ms * 1_000_000


@given(ANY, ANY, ANY, st.integers(1, 10**10), st.none() | ANY, st.integers(1, 10**10))
def test_no_prediction_is_out_of_its_range_or_below_its_bound(step, low, high, base, bound, other):
    found = Prediction(step, (low, high), base, None, bound)
    for one in (found, found.counted_from(other), replace(found, step_ns=step - base)):
        least, most = one.range_ns
        assert 0 <= (one.bound_ns or 0) <= one.base_ns
        assert 0 <= least <= one.step_ns <= most
        assert least >= (one.bound_ns or 0)


def in_bursts():
    """Steps of 27 ms, every fifth takes 300 in the run; the steps timed have more of these."""
    trace = sampled(samples(EVALUATING, far_ms=127), now_and_then("python", (4,)))
    timed = (10 * MS,) * 7 + (110 * MS,) * 3
    return replace(trace, run=replace(trace.run, unprofiled_step_ns=timed))


@pytest.mark.parametrize("every_step", [False, True])
def test_what_replay_goes_by_may_be_longer_than_the_mean_of_the_run(every_step):
    trace = in_bursts()
    mean_ns, found = mean_without_profiler_ns(trace), steps(trace)
    assert comes_in_bursts(trace)
    assert mean_ns < corrected_step_ns(trace)
    for part in (0.1, 0.5, 1.0):
        end = found.host_start_ns + ((found.host_end_ns - found.host_start_ns) * part).astype(int)
        after = what_if_mean(
            trace, [RemoveHostTime(found.host_start_ns, end)], every_step=every_step
        )
        assert after.base_ns == mean_ns
        assert 0 < after.bound_ns <= after.range_ns[0] <= after.step_ns <= after.range_ns[1]
        assert after.range_ns[1] <= mean_ns


def timed_as(*timed_ms):
    """Steps of 10 ms, a third of which is the host's, of a run that timed these."""
    timed = tuple(round(ms * MS) for ms in timed_ms) * 2
    return replace(now_and_then("python", ()), run=RunFacts(unprofiled_step_ns=timed))


def test_steps_that_wander_as_wholes_keep_their_share_of_it_after_a_fix():
    trace = timed_as(10, 10, 10, 10, 10, 14, 14, 14)  # a median of 10, a mean of 11.5
    found, ops = steps(trace), trace.device_ops
    half = ScaleDeviceOps(np.arange(len(ops)), 0.5)
    after = what_if_mean(trace, [half])
    assert after.base_ns == 11.5 * MS
    usual = what_if(trace, [half])
    assert after.step_ns == pytest.approx(1.15 * usual.step_ns, rel=1e-3)
    assert after.range_ns[0] == usual.range_ns[0]
    assert found.typical_ns is not None


def test_steps_that_are_far_keep_all_of_it():
    trace = timed_as(10, 10, 10, 10, 10, 10, 10, 22)
    half = ScaleDeviceOps(np.arange(len(trace.device_ops)), 0.5)
    after, usual = what_if_mean(trace, [half]), what_if(trace, [half])
    assert after.step_ns == pytest.approx(usual.step_ns + 1.5 * MS, rel=1e-3)


def test_no_part_of_the_mean_step_is_negative():
    trace = in_bursts()
    parts = base_parts(trace).ns
    assert np.all(parts >= 0)
    assert parts.sum() == mean_without_profiler_ns(trace)


def test_what_a_change_takes_beyond_the_recorded_steps_is_of_the_mean():
    """Each fifth step takes 100 ms more, 20 in the mean: 15 of them go, or no more than all."""
    trace = sampled(samples(SAVING, far_ms=127))
    none = np.zeros(0, np.int64)
    before, less, all_of_it = (
        what_if_mean(trace, [RemoveHostTime(none, none, beyond_ms * MS)])
        for beyond_ms in (0, 15, 99)
    )
    assert before.step_ns - less.step_ns == pytest.approx(15 * MS)
    assert before.step_ns - all_of_it.step_ns == pytest.approx(20 * MS)


def test_a_wait_that_is_gone_explains_no_work_of_the_device_but_that_work_explains_the_wait():
    """The host waits for 100 ns, in 80 of which the device works."""
    built = TraceBuilder()
    built.add(
        "api_calls", start_ns=0, duration_ns=100, name="sync", kind=4, thread=0, correlation=1
    )
    built.add("device_ops", start_ns=20, duration_ns=80, name="work", device=0, stream=1, kind=1)
    trace, row = built.trace(), np.array([0])
    wait, work = DropSyncs(row), DropDeviceOps(row)
    assert covered_ratio(trace, [wait], [work]) == 0
    assert covered_ratio(trace, [work], [wait]) == 0.8
    assert covered_ratio(trace, [ScaleDeviceOps(row, 0.5)], [work]) == 1
    assert covered_ratio(trace, [wait], [wait, work]) == 1  # of the host all
