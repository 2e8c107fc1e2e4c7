import numpy as np
import pytest

from builders import TraceBuilder
from pinchpoint.analysis.replay.recording_cost import (
    COSTS,
    cost_in_windows,
    profiler_steps,
    why_uncalibrated,
)
from pinchpoint.trace import ApiKind, HostKind, Source

US = 1_000
MAIN = np.array([0])


def cost(trace, start_us, end_us, threads=MAIN):
    start, end = np.array([start_us * US]), np.array([end_us * US])
    return int(cost_in_windows(trace, threads, start, end)[0])


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        (HostKind.OPERATOR, COSTS.operator),
        (HostKind.ANNOTATION, COSTS.operator),
        (HostKind.PYTHON, COSTS.frame),
        (HostKind.MODULE, COSTS.frame),
    ],
)
def test_recording_takes_a_share_of_what_lies_between_two_events(kind, share):
    b = TraceBuilder()
    b.op("row", 100 * US, 2 * US, kind=kind)
    trace = b.trace()
    assert cost(trace, 100, 102) == share.ratio * 2 * US
    assert cost(trace, 100, 101) == share.ratio * 1 * US
    assert cost(trace, 0, 100) == 0


def test_of_a_long_interval_most_is_the_programs_own():
    b = TraceBuilder()
    b.op("row", 100 * US, 500 * US)
    trace = b.trace()
    assert cost(trace, 100, 600) == COSTS.operator.most_ns
    assert cost(trace, 200, 600) == 0  # it was taken at the beginning


def test_what_is_not_recorded_costs_nothing():
    b = TraceBuilder()
    b.op("row", 100 * US, 100 * US, kind=HostKind.OVERHEAD)
    assert cost(b.trace(), 0, 300) == 0


def test_a_call_is_as_long_as_recorded_and_what_follows_is_not():
    b = TraceBuilder()
    b.op("row", 100 * US, 20 * US)
    b.api("cudaLaunchKernel", 105 * US, 10 * US, kind=ApiKind.LAUNCH)
    trace = b.trace()
    assert cost(trace, 105, 115) == 0
    assert cost(trace, 115, 120) == COSTS.call.ratio * 5 * US


@pytest.mark.parametrize(
    ("second", "share"),
    [(ApiKind.QUERY, COSTS.query), (ApiKind.LAUNCH, COSTS.call)],
)
def test_between_calls_that_only_ask_recording_takes_little(second, share):
    b = TraceBuilder()
    b.api("cudaPeekAtLastError", 100 * US, US, kind=ApiKind.QUERY)
    b.api("cudaNext", 1_000 * US, US, kind=second)
    assert cost(b.trace(), 101, 1_000) == share.most_ns


def test_other_threads_do_not_count():
    b = TraceBuilder()
    other = b.thread("other")
    b.op("row", 100 * US, 2 * US, thread=other)
    trace = b.trace()
    assert cost(trace, 0, 300) == 0
    assert cost(trace, 0, 300, np.array([other])) == COSTS.operator.ratio * 2 * US


def two_steps(name="ProfilerStep#{}"):
    b = TraceBuilder()
    for i in range(2):
        b.add("steps", name=name.format(i), number=i, start_ns=i * 300 * US,
              duration_ns=200 * US, thread=0)  # fmt: skip
    b.op("row", 220 * US, 50 * US)
    return b.trace()


def test_between_markers_of_the_profiler_all_time_is_its_own():
    trace = two_steps()
    assert profiler_steps(trace).start.tolist() == [200 * US]
    assert cost(trace, 100, 400) == 100 * US  # the row in between costs nothing more


def test_between_marks_of_a_person_it_is_the_programs():
    trace = two_steps("epoch {}")
    assert not len(profiler_steps(trace).start)
    assert cost(trace, 100, 400) == COSTS.operator.most_ns


def test_a_window_that_ends_before_it_begins_costs_nothing():
    assert cost(two_steps(), 400, 100) == 0


@pytest.mark.parametrize(
    ("recorder", "why"),
    [
        ("torch.profiler", None),
        ("nsys", "no calibration for this recorder"),
        ("jax", "no calibration for this recorder"),
        ("rocprof", "no calibration for this recorder"),
        (None, "the file does not show what recorded it"),
    ],
)
def test_only_recorders_that_were_measured_are_corrected(recorder, why):
    b = TraceBuilder()
    b.op("row", 100 * US, 100 * US)
    trace = b.trace(source=Source("a", "kineto", recorder=recorder))
    assert why_uncalibrated(trace) == why
    assert (cost(trace, 0, 300) > 0) == (why is None)


def test_where_nothing_was_timed_there_is_nothing_to_correct():
    assert why_uncalibrated(TraceBuilder().trace(source=Source("a", "ncu", recorder="ncu"))) is None


@pytest.mark.parametrize(
    ("file", "grows", "taken"),
    [
        ("/tmp/torchinductor_me/ab/cab.py", 1, True),  # written by a compiler
        ("train.py", 1, False),  # a loop may do more from turn to turn
        ("/tmp/torchinductor_me/ab/cab.py", 0, False),
    ],
)
def test_what_looking_up_lines_of_a_long_function_takes(file, grows, taken):
    """400 calls of 1 µs, 20 µs apart; with 0.1 µs more from each to the next."""
    b, at = TraceBuilder(), 100 * US
    for call in range(400):
        b.op("<built-in function f>", at, US, kind=HostKind.PYTHON)
        at += 21 * US + grows * call * US // 10
    b.op(f"{file}(3155): call", 90 * US, at - 90 * US, kind=HostKind.PYTHON)
    lookups = 399 * 400 / 2 * US / 10 if taken else 0
    shares = 400 * (COSTS.frame.most_ns + COSTS.frame.ratio * US)
    assert cost(b.trace(), 0, at // US) == pytest.approx(lookups + shares, rel=0.02)
