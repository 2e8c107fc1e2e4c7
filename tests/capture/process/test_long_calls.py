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
        calls, on_core_ns = LongCalls(), 0
        for instruction, took_us in seen:
            now[0] += 0.1
            on_core_ns = None if took_us is None else on_core_ns + 1000 * took_us
            monkeypatch.setattr(long_calls, "stack_of", lambda _, at=instruction: [("code", at)])
            monkeypatch.setattr(LongCalls, "_now_on_core_ns", lambda _, ns=on_core_ns: ns)
            calls.look()
        return calls

    return run


def test_one_call_is_as_long_as_the_looks_that_find_it_there(looks):
    """A wait of a second that looks for signals, and a shorter one after a step."""
    calls = looks([(1, 0), *[(1, 150), (1, 0)] * 5, (1, 1400), *[(1, 0)] * 4])
    assert calls.longest_s == pytest.approx(1.0)
    assert calls.enough_s(2.0, 30.0) == pytest.approx(5.0)
    assert calls.enough_s(2.0, 3.0) == 3.0  # no more fits
    assert calls.enough_s(8.0, 30.0) == 8.0
    assert looks([(1, 0)] * 100).enough_s(2.0, 90.0) == long_calls.MOST_S


@pytest.mark.parametrize(
    "seen",
    [[(1, 900)] * 20, [(n, 0) for n in range(20)], [(1, None)] * 20],
    ids=[
        "many short waits in one line, or it computes",
        "it waits here and there",
        "the system does not tell",
    ],
)
def test_short_calls_ask_for_no_more(looks, seen):
    assert looks(seen).enough_s(2.0, 30.0) == 2.0
