"""What comes round in a program is found and heard of, and nothing else is touched."""

import sys
import threading
import time
from types import SimpleNamespace

import pytest

from fake_monitoring import DISABLE, JUMP, PY_START, Monitoring
from pinchpoint.capture.process import own_loops
from pinchpoint.capture.process.own_loops import JUDGED, MOST_ELSEWHERE, OwnLoops

told = pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="from Python 3.12 on")

PROGRAM = """
def step(work):
    for turn in range(3):
        work()

def main(steps, work):
    for number in range(steps):
        step(work)
        if number % 2:
            continue

def library(function, times):
    for _ in range(times):
        function()
"""


def functions(file="/home/me/solve.py"):
    scope = {}
    exec(compile(PROGRAM, file, "exec"), scope)
    return scope


@pytest.fixture
def monitoring(monkeypatch):
    fake = Monitoring()
    monkeypatch.setattr(sys, "monitoring", fake, raising=False)
    return fake


@pytest.fixture
def clock(monkeypatch):
    """Milliseconds, in place of the clock; the thread is at work all the time."""
    at = SimpleNamespace(ms=0.0)
    named = SimpleNamespace(perf_counter_ns=lambda: round(at.ms * 1e6))
    monkeypatch.setattr(own_loops, "time", named)
    monkeypatch.setattr(own_loops, "_on_cores", lambda: on_cores(at.ms))
    return at


def on_cores(ms, other_ms=0.0):
    """Of the main thread and of another one."""
    return {threading.main_thread().ident: round(ms * 1e6), 7: round(other_ms * 1e6)}


class Learning:
    """Loops that look at ``main`` and ``step`` of the program above."""

    def __init__(self, monitoring, clock):
        self.monitoring, self.clock, self.turned = monitoring, clock, []
        self.loops = OwnLoops(lambda: self.turned.append(clock.ms))
        scope = functions()
        self.main, self.step = scope["main"].__code__, scope["step"].__code__
        self.look()

    def look(self):
        self.loops.look([(self.step, 0), (self.main, 0)])

    def jump(self, code, offset=40, destination=10):
        return self.monitoring.heard[JUMP](code, offset, destination)

    def steps(self, number, ms=100):
        for _ in range(number):
            self.clock.ms += ms
            self.monitoring.heard[PY_START](self.step, 0)
            for _ in range(3):
                self.jump(self.step)
            self.jump(self.main)


@pytest.fixture
def learning(monitoring, clock):
    return Learning(monitoring, clock)


def test_it_asks_about_the_program_s_own_codes_alone(learning):
    library = functions(own_loops.__file__)["library"].__code__
    learning.loops.look([(library, 0), (learning.main, 0)])
    assert learning.monitoring.local == dict.fromkeys((learning.main, learning.step), 3)


def test_the_outermost_loop_is_chosen_and_heard_of_alone(learning):
    learning.steps(12)
    learning.look()
    assert (learning.loops.kind, learning.loops.place[2]) == ("loop", "main")
    assert learning.monitoring.local == {learning.main: JUMP, learning.step: 0}
    assert learning.monitoring.heard[PY_START] is None


def test_each_turn_is_told_without_a_frame_of_ours_around_it(learning):
    """In a callback that is Python, what it calls would stand open in a recording for ever."""
    learning.steps(12)
    learning.look()
    callers = []
    learning.loops._turned = lambda: callers.append(sys._getframe(2))
    learning.loops._chosen.at.add(sys._getframe(0).f_lasti)

    def told_of():
        frame = sys._getframe()
        learning.loops._chosen.at.update(range(0, 400))
        learning.monitoring.heard[JUMP](learning.main, 40, 10)
        return frame

    frame = told_of()
    assert callers == [frame]


def test_what_fails_in_it_never_reaches_the_program(learning):
    learning.steps(12)
    learning.look()
    learning.loops._turned = lambda: 1 / 0
    learning.loops._chosen.at.update(range(0, 2_000))
    learning.jump(learning.main)
    assert learning.monitoring.tools == {}  # it has ended instead


def test_other_jumps_of_the_function_are_asked_for_once(learning):
    learning.steps(12)
    learning.look()
    turns = learning.monitoring.heard[JUMP]
    learning.loops._chosen.at.clear()  # what comes now, it has not seen: a break, say
    learning.jump(learning.main, 20, 90)
    assert learning.turned == []
    assert learning.jump(learning.main, 20, 90) is DISABLE
    assert learning.jump(learning.main) is None  # the next turn, by another way
    assert learning.turned == [learning.clock.ms]
    assert learning.monitoring.heard[JUMP] is not turns
    learning.loops._chosen.at.update(range(0, 2_000))
    learning.jump(learning.main)
    assert len(learning.turned) == 2


@pytest.mark.parametrize(("ms", "passes"), [(0.01, JUDGED[0][0]), (0.1, JUDGED[1][0])])
def test_what_comes_too_often_is_heard_of_no_more(learning, ms, passes):
    heard = []
    while len(heard) < passes:
        learning.clock.ms += ms
        heard.append(learning.jump(learning.step, 70, 50))
    assert heard[:-1] == [None] * (passes - 1)
    assert heard[-1] is DISABLE


def test_a_host_that_is_ahead_of_its_device_for_a_while_is_heard_of_on(learning):
    """100 turns of a tenth of a millisecond, until the queue is full; then as the device works."""
    heard = set()
    for ms in [0.1] * 100 + [20] * 50:
        learning.clock.ms += ms
        heard.add(learning.jump(learning.main))
    learning.look()
    assert heard == {None}
    assert learning.loops.chosen


def test_jumps_forward_are_no_turns(learning):
    assert learning.jump(learning.main, 10, 40) is DISABLE


def test_other_threads_are_none_of_its_rounds(learning):
    answers = []

    def elsewhere():
        answers.extend(learning.jump(learning.main) for _ in range(MOST_ELSEWHERE))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert answers[-1] is DISABLE
    assert [one.count for one in learning.loops._rounds.values()] == [0]


@pytest.mark.parametrize(
    ("mine", "others", "chosen"),
    [(1, 0, True), (0.05, 0, False), (0.4, 0.3, True), (0.4, 3, False)],
)
def test_a_loop_that_waits_for_the_work_of_others_is_none(
    learning, monkeypatch, mine, others, chosen
):
    """By shares of the time that the thread, and other threads, were on a core."""

    def shares():
        return on_cores(mine * learning.clock.ms, others * learning.clock.ms)

    monkeypatch.setattr(own_loops, "_on_cores", shares)
    learning.loops._begin_anew()
    learning.steps(12)
    learning.look()
    assert learning.loops.chosen == chosen


def test_what_was_held_up_is_forgotten(learning):
    learning.steps(12)
    learning.loops.held_up()
    learning.look()
    assert not learning.loops.chosen
    learning.steps(12)
    learning.look()
    assert learning.loops.chosen
    learning.loops.held_up()
    assert learning.monitoring.heard[PY_START] is None  # what is chosen stays


def test_it_looks_for_something_else_once_that_has_ended(learning):
    learning.steps(12)
    learning.look()
    learning.loops.lost()
    assert learning.loops.learns
    for least_ms in (2_000, 1_000):  # in place of what was
        for _ in range(12):
            learning.clock.ms += 90
            learning.jump(learning.main, 200, 120)
        stack = [(learning.step, 0), (learning.main, 0)]
        learning.loops.look(stack, (least_ms + 1_000) * 1_000_000)
        assert learning.loops.chosen == learning.loops.changed == (least_ms == 1_000)
    assert learning.turned == []


def test_what_was_chosen_goes_on_where_it_comes_again(learning):
    """After an evaluation, say, whose own loop is looked at meanwhile."""
    learning.steps(12)
    learning.look()
    learning.loops.lost()
    learning.look()
    for _ in range(12):
        learning.clock.ms += 90
        learning.jump(learning.step, 200, 120)
    learning.jump(learning.main)
    assert learning.turned == [learning.clock.ms]
    assert learning.loops.chosen
    assert not learning.loops.changed
    assert learning.monitoring.local == {learning.main: JUMP, learning.step: 0}


def test_at_its_end_nothing_is_left(learning):
    learning.steps(12)
    learning.look()
    learning.loops.end()
    assert learning.monitoring.tools == {}
    assert set(learning.monitoring.local.values()) == {0}
    assert set(learning.monitoring.heard.values()) == {None}
    learning.look()
    assert learning.monitoring.tools == {}


def test_without_a_free_tool_it_does_without(monitoring, clock):
    monitoring.tools = {3: "one", 4: "another", 5: "a third"}
    learning = OwnLoops(lambda: None)
    learning.look([(functions()["main"].__code__, 0)])
    assert monitoring.local == {}
    learning.end()
    assert monitoring.tools == {3: "one", 4: "another", 5: "a third"}


def test_an_interpreter_that_cannot_tell_changes_nothing(monkeypatch):
    monkeypatch.delattr(sys, "monitoring", raising=False)
    loops = OwnLoops(lambda: None)
    loops.look([(functions()["main"].__code__, 0)])
    assert not loops.learns


def test_a_code_that_it_refuses_ends_it(monitoring, clock, monkeypatch):
    def refuses(tool, code, events):
        raise ValueError("code")

    monkeypatch.setattr(monitoring, "set_local_events", refuses)
    loops = OwnLoops(lambda: None)
    loops.look([(functions()["main"].__code__, 0)])
    assert monitoring.tools == {}


# ------------------------------------------------------------------------------------------------
# With the interpreter's own telling.


def spin():
    until = time.perf_counter() + 0.004
    while time.perf_counter() < until:
        pass


@told
def test_turns_of_a_running_loop_are_told_one_by_one():
    scope, turned = functions(), []
    loops = OwnLoops(lambda: turned.append(sys._getframe(2).f_code.co_name))
    main, step = scope["main"].__code__, scope["step"].__code__
    loops.look([(step, 0), (main, 0)])
    try:
        before = []

        def work():
            spin()
            if not loops.chosen:
                loops.look([(step, 0), (main, 0)])
                before.append(loops.chosen)

        scope["main"](120, work)
        assert loops.place[2] == "main"
        assert len(turned) == 120 - (len(before) - 1) // 3  # three calls of work in each
        assert set(turned) == {"main"}
    finally:
        loops.end()


@told
def test_calls_by_a_library_are_told_too():
    scope, turned = functions(), []
    library = functions("/usr/lib/python3/dist-packages/library.py")["library"]
    loops = OwnLoops(lambda: turned.append(1))
    code = scope["step"].__code__

    def function():
        if not loops.chosen:
            loops.look([(library.__code__, 0), (code, 0)])
        scope["step"](spin)

    try:
        library(function, 120)
        assert (loops.kind, loops.place[2]) == ("call", "step")
        assert 20 < len(turned) < 110
    finally:
        loops.end()


@told
def test_a_raised_exception_leaves_the_loop_as_it_would():
    scope = functions()
    loops = OwnLoops(lambda: None)

    def work():
        spin()
        loops.look([(scope["main"].__code__, 0)]) if not loops.chosen else None
        if loops.chosen:
            raise LookupError

    try:
        with pytest.raises(LookupError):
            scope["main"](500, work)
    finally:
        loops.end()
