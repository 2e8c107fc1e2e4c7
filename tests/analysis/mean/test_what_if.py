"""What a gain counts from: the step that is said."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.mean.base_parts import base_parts
from pinchpoint.analysis.mean.on_cpu import slower_outside
from pinchpoint.analysis.mean.what_if import _counted_from, _of_the_step_said
from pinchpoint.analysis.replay.predict import Prediction
from pinchpoint.trace import RunFacts


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
