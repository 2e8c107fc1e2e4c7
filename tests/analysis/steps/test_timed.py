"""Steps that a run timed without the profiler: by hooks, or by the calls of compiled functions."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.replay.predict import after_saving, corrected_step_ns
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.steps.timed import (
    calls_that_make_steps,
    from_wait_to_wait,
    timed_by_run,
)
from pinchpoint.report.assemble.report import diagnose
from pinchpoint.trace import CompiledCalls, HostKind, RunFacts

MS = 1_000_000
STEPS, STEP_NS, DEVICE_NS = 20, 60 * MS, 20 * MS


@pytest.fixture(scope="module")
def recorded():
    """20 steps of 60 ms with the profiler, of which the device works 20."""
    builder = TraceBuilder()
    for n in range(STEPS):
        at = n * STEP_NS
        builder.op("PjitFunction(train)", at, 10 * MS, kind=HostKind.ANNOTATION)
        builder.launch(at + 9 * MS, 1000, "fusion", at + 39 * MS, DEVICE_NS)
    trace = builder.trace()
    assert (len(steps(trace)), steps(trace).typical_ns) == (STEPS, STEP_NS)
    return replace(trace, source=replace(trace.source, recorder="jax"))


def place(inside, mean_ms, *, median_ms=None, before=(35,) * 20, after=(35,) * 20, line=9):
    before_ns, after_ns = (tuple(round(ms * MS) for ms in side) for side in (before, after))
    return CompiledCalls(
        place=("train.py", line, "main"),
        function="train",
        inside=inside,
        inside_mean_ns=round(mean_ms * MS),
        inside_median_ns=round((mean_ms if median_ms is None else median_ms) * MS),
        before_ns=before_ns,
        after_ns=after_ns,
        step_ns=before_ns + after_ns,
    )


def run_of(recorded, *places, **facts):
    return replace(recorded, run=RunFacts(calls=places, **facts))


@pytest.mark.parametrize("inside", [19, 20, 21, 22])
def test_a_place_called_as_often_as_steps_were_recorded_times_them(recorded, inside):
    trace = run_of(recorded, place(inside, 60))
    assert timed_by_run(trace) == (35 * MS,) * 40
    assert corrected_step_ns(trace) == 35 * MS


@pytest.mark.parametrize(
    "other",
    [place(2, 600), place(10, 120), place(23, 60), place(17, 60), place(20, 90), place(28, 40)],
    ids=["now and then", "every other step", "too often", "too rarely", "longer", "shorter"],
)
def test_another_place_does_not(recorded, other):
    trace = run_of(recorded, other)
    assert timed_by_run(trace) == ()
    assert corrected_step_ns(trace) is None or corrected_step_ns(trace) == STEP_NS


def test_the_place_that_fits_best_is_taken(recorded):
    wrong = place(22, 60, before=(1,) * 20, after=(1,) * 20, line=8)
    found = calls_that_make_steps(run_of(recorded, wrong, place(20, 60)))
    assert (found.calls.place[1], found.each) == (9, 1)


def test_hooks_that_saw_steps_outrank_calls(recorded):
    trace = run_of(recorded, place(20, 60), unprofiled_step_ns=(50 * MS,))
    assert timed_by_run(trace) == (50 * MS,)


def test_several_calls_that_make_a_step_count_together(recorded):
    """Four a step, of which the last waits; the first two of 22 belong to no whole step."""
    trace = run_of(recorded, place(80, 15, before=(1, 32) + (1, 1, 1, 32) * 5, after=()))
    assert timed_by_run(trace) == (35 * MS,) * 5


def test_calls_ahead_of_the_device_count_from_wait_to_wait(recorded):
    """One in ten waits for the ten before: 27 ms each, and no call took as long."""
    issued = (3,) + ((1,) * 9 + (261,)) * 4 + (1,) * 5
    trace = run_of(recorded, place(20, 60, median_ms=1, before=issued, after=()))
    assert timed_by_run(trace) == (27 * MS,) * 30
    assert corrected_step_ns(trace) == 27 * MS


def test_calls_that_never_wait_for_long_are_as_long_as_on_average():
    assert from_wait_to_wait((1, 1, 7)) == (3, 3, 3)
    assert from_wait_to_wait(()) == ()


def test_what_is_won_of_the_host_is_less_without_the_profiler(recorded):
    """Of 40 ms beside the device 15 are left: 10 that a fix saves of a recorded step are 3.75."""
    trace = run_of(recorded, place(20, 60))
    assert after_saving(trace, (10 * MS, 10 * MS)).step_ns == 31.25 * MS


def test_what_is_won_of_the_device_is_as_recorded(recorded):
    """Of 20 ms of its work 12 are left: 8 are won, and of 2 more of the host's 0.75."""
    trace = run_of(recorded, place(20, 60))
    assert after_saving(trace, (10 * MS, 10 * MS), 12 * MS).step_ns == 26.25 * MS


def test_the_report_says_what_the_step_takes_without_the_profiler(recorded):
    found = diagnose(run_of(recorded, place(20, 60))).steps
    assert found.unprofiled_ns_predicted == 35 * MS
    assert found.unprofiled_how == "measured in the same run"


@pytest.mark.parametrize(
    ("places", "python", "why"),
    [
        ((place(10, 120),), "3.12.3", "no compiled function is called as its steps come"),
        ((), "3.11.7", "Python 3.11 does not tell of calls, by which 3.12 times the steps"),
        ((), "3.9.1", "Python 3.9 does not tell of calls, by which 3.12 times the steps"),
        ((), "3.12.3", None),
        ((), None, None),
        ((), "³.1", None),
    ],
    ids=["none fits", "before 3.12", "long before", "nobody listened", "not known", "no number"],
)
def test_the_report_says_why_it_is_not_known(recorded, places, python, why):
    found = diagnose(run_of(recorded, *places, python=python)).steps
    assert found.unprofiled_ns_predicted is None
    said = ("not corrected: no calibration for this recorder", why)
    assert found.unprofiled_how == "; ".join(filter(None, said))
