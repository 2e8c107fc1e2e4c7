from dataclasses import replace

import pytest

from builders import TraceBuilder
from exceptional_programs import now_and_then, two_kinds
from pinchpoint.analysis.mean.exceptional_steps import exceptional_steps
from pinchpoint.analysis.mean.mean_step import (
    at_the_rate_of_the_run,
    mean_differs,
    mean_range_ns,
    mean_step,
    mean_without_profiler_ns,
    unrecorded_excess_ns,
    usual_step_ns,
)
from pinchpoint.analysis.mean.step_kinds import launches_per_step, step_kinds
from pinchpoint.analysis.replay.predict import corrected_range_ns
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.trace import DeviceKind, RunFacts, Source
from sampled_runs import SAVING, samples

MS = 1e6


@pytest.mark.parametrize(
    ("more", "kind", "function", "part_ms"),
    [
        ("late batch", GapKind.DATA, "step", 100),
        ("checkpoint", GapKind.CHECKPOINT, "every_so_often", 100),
        ("garbage", GapKind.GC, "every_so_often", 100),
        ("compiler", GapKind.COMPILE, "every_so_often", 100),
        # Of a host's own work the accounting gives 10 ms to the synchronisation before it.
        ("python", GapKind.PYTHON, "rebuild_index", 90),
        ("allocator", GapKind.MALLOC, "every_so_often", 100),
    ],
)
def test_what_the_device_waited_for_fills_the_excess(more, kind, function, part_ms):
    (one,) = exceptional_steps(now_and_then(more, (4,)))
    assert one.step == 4
    assert one.kind == kind
    assert one.excess_ns == pytest.approx(100 * MS, rel=0.01)
    assert one.part_ns == pytest.approx(part_ms * MS, rel=0.01)
    assert one.place.function == function
    assert not one.starting


def test_mean_is_the_typical_part_and_the_excess():
    mean = mean_step(now_and_then("checkpoint", (4,)))
    assert mean.count == 10
    assert mean.typical_ns == pytest.approx(10 * MS, rel=0.01)
    assert mean.mean_ns == pytest.approx(20 * MS, rel=0.01)
    excess = sum(one.excess_ns for cause in mean.causes for one in cause.steps)
    assert mean.mean_ns * 10 == pytest.approx(mean.typical_ns * 10 + excess, abs=20)
    assert mean.without_ns(mean.causes[0]) == pytest.approx(10 * MS, rel=0.01)


@pytest.mark.parametrize(
    ("at", "steps", "every"),
    [((3, 8, 13), 16, 5), ((3, 8, 15), 16, None), ((3, 8), 11, None), ((6,), 11, None)],
    ids=["regular", "irregular", "twice", "once"],
)
def test_how_often_it_comes(at, steps, every):
    (cause,) = mean_step(now_and_then("checkpoint", at, steps=steps)).causes
    assert [one.step for one in cause.steps] == list(at)
    assert cause.every == every


def test_what_was_issued_before_the_recording_is_no_work_of_the_step_in_which_it_runs():
    b = TraceBuilder()
    for at in range(1_100, 1_900, 20):  # without a call
        b.add(
            "device_ops",
            name="late",
            kind=DeviceKind.KERNEL,
            start_ns=at,
            duration_ns=15,
            device=0,
            stream=9,
        )
    for number in range(6):
        b.step(number, 1_000 * number, 900)
        for at in (100, 200, 300):
            b.launch(1_000 * number + at, 10, "gemm", 2_000 + 1_000 * number + at, 90)
    assert launches_per_step(b.trace()).tolist() == [3] * 6


def test_more_work_without_a_backward_pass_is_an_evaluation():
    (one,) = exceptional_steps(now_and_then("evaluation", (5,)))
    assert one.kind is None
    assert one.part.group == "device"
    assert one.forward_only
    assert one.place.function == "every_so_often"
    assert one.excess_ns == pytest.approx(100 * MS, rel=0.01)


def test_slow_device_work_is_no_evaluation():
    (one,) = exceptional_steps(now_and_then("slow kernel", (5,)))
    assert one.kind is None
    assert one.name == "gemm"
    assert not one.forward_only


def test_a_slow_first_step_is_a_beginning_and_not_what_a_step_costs():
    trace = now_and_then("compiler", (0, 1))
    (one,) = exceptional_steps(trace)  # step 0 is partial
    assert one.starting
    mean = mean_step(trace)
    assert mean.mean_ns == pytest.approx(20 * MS, rel=0.01)
    assert mean.steady_ns == pytest.approx(10 * MS, rel=0.01)
    assert not mean_differs(trace)


def test_a_save_in_the_first_step_is_no_beginning():
    (one,) = exceptional_steps(now_and_then("checkpoint", (0, 1)))
    assert not one.starting


def test_kinds_of_steps_are_no_exceptions():
    trace = two_kinds()
    kinds = step_kinds(trace)
    assert exceptional_steps(trace) == ()
    assert [(len(k.steps), round(k.median_ns / MS)) for k in kinds.kinds] == [(2, 50), (6, 10)]


def test_micro_steps_are_named_by_the_optimizer_that_they_lack():
    labels = {len(k.steps): k.label for k in step_kinds(two_kinds()).kinds}
    assert labels[6] == "without an optimizer step"


def test_the_mean_of_several_kinds_is_what_a_step_costs():
    trace = two_kinds()
    assert mean_step(trace).mean_ns == pytest.approx((2 * 50 + 6 * 10) / 8 * MS, rel=0.01)
    assert mean_differs(trace)


def test_steps_alike_have_one_kind_and_no_exceptions():
    trace = now_and_then("python", ())
    assert len(step_kinds(trace).kinds) == 1
    assert exceptional_steps(trace) == ()
    assert not mean_differs(trace)
    assert mean_without_profiler_ns(trace) is None


def test_three_steps_show_no_exception():
    trace = now_and_then("checkpoint", (2,), steps=4)
    assert exceptional_steps(trace) == ()
    assert not mean_differs(trace)


def timed(trace, *ms):
    return replace(trace, run=RunFacts(unprofiled_step_ns=tuple(round(m * MS) for m in ms)))


def test_the_mean_of_the_run_outranks_that_of_the_recording():
    trace = timed(now_and_then("python", (4,)), *[10] * 99, 110)
    assert mean_without_profiler_ns(trace) == round(11 * MS)
    assert at_the_rate_of_the_run(trace, round(10 * MS)) == round(MS)


def test_what_the_recording_does_not_show_of_the_run_is_told():
    quiet, shown = now_and_then("python", ()), now_and_then("python", (4,))
    run = [10.0] * 9 + [110.0]
    assert unrecorded_excess_ns(timed(quiet, *run)) == pytest.approx(10 * MS, rel=0.02)
    assert unrecorded_excess_ns(timed(shown, *run)) is None
    assert unrecorded_excess_ns(quiet) is None


@pytest.mark.parametrize(("at", "times"), [((4,), 1), ((3, 8), 2)], ids=["once", "twice"])
def test_ranges_of_the_typical_and_of_the_mean_step(at, times):
    trace = replace(
        now_and_then("checkpoint", at, steps=12),
        source=Source("a", "kineto", recorder="torch.profiler"),
    )
    low, high = corrected_range_ns(trace)
    assert high - low < 10 * MS  # the 110 ms of an exception are no doubt about a typical step
    mean, (least, most) = mean_without_profiler_ns(trace), mean_range_ns(trace)
    doubt = times**0.5 * 100 * MS / 12  # of k exceptions, √k more or fewer
    assert mean - least == pytest.approx(doubt, rel=0.1)
    assert most - mean == pytest.approx(doubt, rel=0.1)


def test_what_came_once_in_the_run_counts_once_in_its_mean():
    """Of 20 timed steps one is far; of the run's 1,000 it is the only one."""
    timed = (*(10_000_000,) * 15, *(11_000_000,) * 4, 200_000_000)
    trace = now_and_then("checkpoint", ())
    found = replace(samples(every=500, count=1_000, usual_ms=10, far_ms=200), events=())
    found = replace(found, excess_ns=190_000_000)
    alone = replace(trace, run=RunFacts(unprofiled_step_ns=timed))
    looked = replace(trace, run=RunFacts(unprofiled_step_ns=timed, samples=found))
    assert mean_without_profiler_ns(alone) == pytest.approx(19.7 * MS)
    assert mean_without_profiler_ns(looked) == pytest.approx((10.21 + 0.19) * MS, rel=1e-3)


def test_far_steps_that_are_many_are_no_usual_ones():
    """Eight of twenty steps are far, and so is what lies in their middle and the others'."""
    timed = (*(10_000_000,) * 9, *(16_000_000,) * 3, *(160_000_000,) * 8)
    trace = now_and_then("checkpoint", ())
    found = samples(SAVING, every=3, count=300, usual_ms=10, far_ms=160)
    looked = replace(trace, run=RunFacts(unprofiled_step_ns=timed, samples=found))
    assert usual_step_ns(looked) == 10 * MS
