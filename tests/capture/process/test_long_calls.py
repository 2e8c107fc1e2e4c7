"""Recordings by time are longer where the program's calls are."""

import pytest

from pinchpoint.capture.process import long_calls
from pinchpoint.capture.process.long_calls import LongCalls


@pytest.fixture
def looks(monkeypatch):
    """Looks a tenth of a second apart, each with an instruction and a count of waits."""
    now = [0.0]
    monkeypatch.setattr(long_calls.time, "monotonic", lambda: now[0])

    def run(seen):
        calls = LongCalls()
        for instruction, waits in seen:
            now[0] += 0.1
            monkeypatch.setattr(long_calls, "stack_of", lambda _, at=instruction: [("code", at)])
            monkeypatch.setattr(LongCalls, "_waits", lambda _, count=waits: count)
            calls.look()
        return calls

    return run


def test_one_call_is_as_long_as_the_looks_that_find_it_there(looks):
    calls = looks([(1, 5)] * 11 + [(2, 6)] + [(1, 7)] * 4)
    assert calls.longest_s == pytest.approx(1.0)
    assert calls.enough_s(2.0, 30.0) == pytest.approx(6.0)
    assert calls.enough_s(2.0, 3.0) == 3.0  # no more fits
    assert calls.enough_s(8.0, 30.0) == 8.0
    assert looks([(1, 5)] * 100).enough_s(2.0, 90.0) == long_calls.MOST_S


@pytest.mark.parametrize(
    "seen",
    [[(1, n) for n in range(20)], [(n, 5) for n in range(20)], [(1, None)] * 20],
    ids=["many short waits in one line", "it computes here and there", "the system does not tell"],
)
def test_short_calls_ask_for_no_more(looks, seen):
    assert looks(seen).enough_s(2.0, 30.0) == 2.0
