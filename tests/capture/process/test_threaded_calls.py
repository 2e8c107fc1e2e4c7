"""Requests and jobs in threads of their own: how many, how long, and how many at once."""

import sys
import threading
from types import SimpleNamespace

import pytest

from fake_monitoring import DISABLE, Monitoring
from fake_monitoring import PY_RETURN as RETURN
from fake_monitoring import PY_START as START
from pinchpoint.capture.process import threaded_calls
from pinchpoint.capture.process.own_loops import JUDGED
from pinchpoint.capture.process.threaded_calls import FEWEST_CALLS, ThreadedCalls

PROGRAM = """
def worker():
    while True:
        handle()

def handle():
    return helper()

def helper():
    pass
"""


@pytest.fixture
def server(monkeypatch):
    return Server(monkeypatch)


class Server:
    """Threads of a program, by hand: each call begins and ends when the test says so."""

    def __init__(self, monkeypatch):
        self.monitoring = Monitoring()
        monkeypatch.setattr(sys, "monitoring", self.monitoring, raising=False)
        self.ms, self.thread, main = 0.0, 1, SimpleNamespace(ident=1)
        named = SimpleNamespace(
            get_ident=lambda: self.thread,
            get_native_id=lambda: 1000 + self.thread,
            main_thread=lambda: main,
        )
        monkeypatch.setattr(threaded_calls, "threading", named)
        clock = SimpleNamespace(perf_counter_ns=lambda: round(self.ms * 1e6))
        monkeypatch.setattr(threaded_calls, "time", clock)
        scope = {}
        exec(compile(PROGRAM, "/home/me/serve.py", "exec"), scope)
        self.code = {name: scope[name].__code__ for name in ("worker", "handle", "helper")}
        self.calls = ThreadedCalls()
        self.calls.look([[(self.code[n], 0) for n in ("helper", "handle", "worker")]])

    def at(self, ms, event, thread, name="handle"):
        self.ms, self.thread = ms, thread
        more = (None,) if event == RETURN else ()
        return self.monitoring.heard[event](self.code[name], 0, *more)

    def two_at_once(self, requests, first_ms=10):
        """Each takes 20 ms, and two threads are at work all the time."""
        for number in range(requests):
            began_ms = first_ms + 10 * number
            if number > 1:
                self.at(began_ms, RETURN, 2 + number % 2)
            self.at(began_ms, START, 2 + number % 2)


def test_requests_that_overlap_have_a_rate_and_a_number_at_once(server):
    server.at(0, START, 2, "worker")
    server.two_at_once(42)
    note = server.calls.note()
    assert note["place"] == ("/home/me/serve.py", 6, "handle")
    assert (note["calls"], note["threads"]) == (42, 2)
    assert (note["median_ns"], note["p95_ns"]) == (20_000_000, 20_000_000)
    assert note["per_s"] == pytest.approx(100, rel=0.05)
    assert note["at_once"] == pytest.approx(2, rel=0.05)


def test_the_outermost_is_told_of_and_not_what_it_calls(server):
    for number in range(1, FEWEST_CALLS + 1):
        for name in ("handle", "helper"):
            server.at(100 * number, START, 2 + number % 2, name)
        for name in ("helper", "handle"):
            server.at(100 * number + 50, RETURN, 2 + number % 2, name)
    assert server.calls.note()["place"][2] == "handle"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_thread_with_work_of_its_own_handles_no_requests(server, threads):
    for number in range(2 * FEWEST_CALLS):
        server.at(100 * number, START, 2 + number % threads)
        server.at(100 * number + 50, RETURN, 2 + number % threads)
    assert (server.calls.note() is None) == (threads == 1)


def test_few_calls_have_no_rate(server):
    server.two_at_once(FEWEST_CALLS)
    assert server.calls.note() is None


def test_calls_of_the_main_thread_are_none(server):
    for number in range(FEWEST_CALLS):
        server.at(100 * number, START, 1)
        server.at(100 * number + 50, RETURN, 1)
    assert server.calls.note() is None


def test_what_a_recording_held_up_is_left_out(server):
    server.two_at_once(42)
    server.calls.held_up(now=True)
    server.two_at_once(10, first_ms=430)  # two began before and are over now
    server.ms = 5_000
    server.calls.held_up(now=False)
    server.two_at_once(42, first_ms=5_000)
    note = server.calls.note()
    assert note["calls"] == 94
    assert note["median_ns"] == 20_000_000
    assert note["per_s"] == pytest.approx(100, rel=0.1)


def test_a_call_that_an_exception_ended_is_forgotten(server):
    server.at(0, START, 2)
    server.two_at_once(42, first_ms=9_000)
    assert server.calls.note()["p95_ns"] == 20_000_000


def test_what_is_called_too_often_is_heard_of_no_more(server):
    passes = JUDGED[0][0]
    answers = [server.at(0.001 * number, START, 2 + number % 2) for number in range(passes)]
    assert answers[-1] is DISABLE
    assert server.at(0.2, RETURN, 2) is DISABLE
    assert server.calls.note() is None


def test_at_its_end_nothing_is_left(server):
    server.two_at_once(42)
    server.calls.end()
    assert server.monitoring.tools == {}
    assert set(server.monitoring.local.values()) == {0}
    assert server.calls.note() is not None
    server.calls.look([[(server.code["handle"], 0)]])
    assert server.monitoring.tools == {}


def test_without_a_free_tool_it_does_without(monkeypatch):
    monitoring = Monitoring()
    monitoring.tools = {3: "one", 4: "another", 5: "a third"}
    monkeypatch.setattr(sys, "monitoring", monitoring, raising=False)
    calls = ThreadedCalls()
    calls.look([[(compile("pass", "/home/me/serve.py", "exec"), 0)]])
    assert (calls.note(), monitoring.local) == (None, {})


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="from Python 3.12 on")
def test_threads_of_a_program_are_told_of():
    scope = {}
    exec(compile(PROGRAM, "/home/me/serve.py", "exec"), scope)
    calls = ThreadedCalls()
    calls.look([[(scope["handle"].__code__, 0)]])

    def work():
        for _ in range(FEWEST_CALLS):
            scope["handle"]()
            threading.Event().wait(0.002)

    threads = [threading.Thread(target=work) for _ in range(3)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        note = calls.note()
        assert (note["calls"], note["threads"]) == (3 * FEWEST_CALLS, 3)
    finally:
        calls.end()
