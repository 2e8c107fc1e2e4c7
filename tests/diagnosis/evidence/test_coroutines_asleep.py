"""The coroutine that an event loop sleeps for, by looks."""

import pytest

from looked_at_runs import looked_at, spent, thread
from pinchpoint.diagnosis.evidence.coroutines_asleep import coroutine_asleep

SLEEP = "asyncio/tasks.py(649): sleep"
LOOP = ("selectors.py(468): select", "asyncio/base_events.py(1871): _run_once")
RUNS = ("asyncio/events.py(80): _run", "asyncio/base_events.py(1922): _run_once")
BATCHER, SENDER = "work.py(30): batcher", "work.py(70): send"


def waits(*coroutine, looks=60):
    return spent((*coroutine, *LOOP), looks=looks)


def computes(function, looks=40):
    return spent((f"work.py(40): {function}", *RUNS), looks=looks)


@pytest.mark.parametrize(
    ("seen", "line"),
    [
        pytest.param([waits(SLEEP, BATCHER)], 30, id="it asks again and again"),
        pytest.param([waits(BATCHER), computes("batcher")], 30, id="it computes by itself"),
        pytest.param([waits(SENDER), computes("batcher")], None, id="it may send requests"),
        pytest.param([waits(SLEEP, BATCHER, looks=40), waits()], None, id="mostly for messages"),
        pytest.param([waits(SLEEP, BATCHER, looks=4)], None, id="seen by accident"),
        pytest.param([spent((SLEEP, BATCHER), looks=60)], None, id="no event loop"),
        pytest.param([computes("batcher")], None, id="it never waits"),
    ],
)
def test_the_line_of_a_coroutine(seen, line):
    found = coroutine_asleep(looked_at(thread(*seen)))
    assert (found and found.line) == line


def test_other_threads_have_loops_of_their_own():
    other = thread(waits(SLEEP, BATCHER), main=False, name="server")
    assert coroutine_asleep(looked_at(thread(computes("step")), other)) is None
