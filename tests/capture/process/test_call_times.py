"""What the run folder keeps of calls: how often in the recording, and in which intervals around."""

import time
from array import array
from pathlib import Path

import pytest

from pinchpoint.capture.process.call_times import calls_note
from pinchpoint.capture.process.compiled_calls import CallPlace, CompiledCalls
from pinchpoint.capture.windows.recording import Recording, TraceFile

MS = 1_000_000
UNIX = 10**18  # what the clock of the day is ahead
FILE = TraceFile("t.xplane.pb", 9, None, None)


@pytest.fixture(autouse=True)
def _clocks(monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: UNIX + 5)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 5)


def called(*places):
    """Calls at these milliseconds, place by place; held up from 990 to 2010."""
    found = CompiledCalls()
    for n, at in enumerate(places):
        key = (n, 0, 0)
        code = compile("\n" * n + "f()", "/w/train.py", "exec")
        found.places[key] = CallPlace(code, 0, f"f{n}")
        found.times_ns[key] = array("q", (round(ms * MS) for ms in at))
    found.busy_ns = [(990 * MS, 2010 * MS)]
    return found


def recorded(start=1000, end=2000, **facts):
    return Recording(FILE, None, UNIX + start * MS, UNIX + end * MS, 0, **facts)


def even(first, last, every):
    return list(range(first, last, every))


STEPS = even(0, 990, 10) + even(1000, 2001, 50) + even(2020, 3020, 10)


def test_intervals_in_the_recording_and_on_both_sides():
    (found,) = calls_note(called(STEPS), [recorded()])
    assert (found["called"], found["place"][0]) == ("f0", "/w/train.py")
    assert (found["inside"], found["inside_mean_ns"], found["inside_median_ns"]) == (
        21,
        50 * MS,
        50 * MS,
    )
    steps = found["steps"]
    assert steps["count"] == len(STEPS)
    # 98 and 99 intervals, less a quarter in which a queue may fill
    assert steps["before_ns"] == [10 * MS] * (98 - 24)
    assert steps["after_ns"] == [10 * MS] * (99 - 24)
    assert steps["run"]["p50"] == steps["run"]["most"] == 10 * MS
    assert steps["run"]["count"] == 98 - 2 + 99  # the first two are cold


def test_a_queue_that_fills_after_the_recording_is_left_out():
    """32 calls at once, and from then on one for each that the device has done."""
    after = [2020 + n for n in range(32)] + even(2100, 6000, 20)
    (found,) = calls_note(called(even(1000, 2001, 50) + after), [recorded()])
    assert set(found["steps"]["after_ns"]) == {20 * MS}
    assert len(found["steps"]["after_ns"]) == 194 + 32 - 40


def test_what_lies_between_a_trial_and_the_recording_is_not_what_came_before():
    calls = called([*even(0, 800, 10), 850, 900, 905, 910, *even(1000, 2001, 50)])
    calls.busy_ns = [(795 * MS, 895 * MS), *calls.busy_ns]
    (found,) = calls_note(calls, [recorded()])
    assert set(found["steps"]["before_ns"]) == {10 * MS}
    assert len(found["steps"]["before_ns"]) == 79 - 19


def test_only_the_seconds_before_the_recording_count():
    """It began five seconds after the program last compiled."""
    slow = [ms - 20_000 for ms in even(0, 20_000, 100)]
    (found,) = calls_note(called(slow + STEPS), [recorded()])
    assert sum(found["steps"]["before_ns"]) <= 5_000 * MS


def test_those_called_least_often_come_first_and_alike_ones_once():
    rarely = even(1000, 2001, 250)
    alike = [ms + 1 for ms in STEPS[80:]]
    often = [ms + half for ms in STEPS for half in (0.25, 0.5)]
    never, twice = even(0, 900, 9), [1100, 1200]
    found = calls_note(called(STEPS, often, rarely, alike, never, twice), [recorded(985, 2005)])
    assert [(one["called"], one["inside"]) for one in found] == [("f2", 5), ("f0", 21), ("f1", 42)]


@pytest.mark.parametrize(
    "recordings",
    [[], [Recording(None, "no file", UNIX, UNIX, 0)], [recorded(window="names")]],
    ids=["none", "failed", "of names alone"],
)
def test_nothing_is_kept_without_a_recording(recordings):
    assert calls_note(called(STEPS), recordings) == []


def test_a_program_that_ended_in_its_recording_has_none_around_it():
    (found,) = calls_note(called(even(1000, 2001, 50)), [recorded()])
    assert found["steps"]["before_ns"] == found["steps"]["after_ns"] == []
    assert found["steps"]["run"] == {"count": 0}
    assert Path(found["place"][0]).name == "train.py"


def test_a_recording_that_follows_divides_what_comes_after():
    calls = called(STEPS + even(4000, 4300, 10))
    calls.busy_ns.append((3005 * MS, 3995 * MS))
    (found,) = calls_note(calls, [recorded()])
    assert found["steps"]["after_ns"] == [10 * MS] * (98 - 24 + 29 - 7)
