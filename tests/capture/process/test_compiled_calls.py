"""Calls of compiled functions: which are noted, where, and when no longer."""

import sys
import threading
import time
from functools import partial
from types import MethodType, ModuleType, SimpleNamespace

import pytest

from pinchpoint.capture.process import compiled_calls
from pinchpoint.capture.process.compiled_calls import MOST_FUNCTIONS, CompiledCalls
from pinchpoint.inside.interpreter_tools import COMPILED_CALLS, NUMBERS

LIBRARY = "/env/site-packages/jax/__init__.py"
told = pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="from Python 3.12 on")


class Compiled:
    """As jaxlib's: a kind of its own, which Python calls like any other."""

    def __init__(self, name="train"):
        self.__name__ = name

    def __call__(self, value=0, **more):
        return value + 1


Compiled.__name__, Compiled.__module__ = "PjitFunction", "jaxlib._jax"


class PjitFunction(Compiled):
    """Of the program: a name alone says nothing."""


PjitFunction.__module__ = "program"


class Trainer:
    """Whose method was compiled."""


@pytest.fixture
def jax(monkeypatch):
    module = ModuleType("jax")
    module.__file__ = LIBRARY
    monkeypatch.setitem(sys.modules, "jax", module)
    return module


@pytest.fixture
def calls(jax, monkeypatch):
    """Without the interpreter's own telling."""
    if hasattr(sys, "monitoring"):
        monkeypatch.setattr(sys.monitoring, "get_tool", lambda tool: "another")
    else:
        monkeypatch.setattr(sys, "monitoring", SimpleNamespace(get_tool=str), raising=False)
    found = CompiledCalls()
    found.begin()
    return found


def code_of(source="pass", file="/home/me/train.py"):
    return compile(source, file, "exec")


def lowered(file, **facts):
    scope = {}
    exec(compile("def pmapped(x): return x", file, "exec"), scope)
    scope["pmapped"].__dict__.update(facts)
    return scope["pmapped"]


@pytest.mark.parametrize(
    "function",
    [
        Compiled(),
        MethodType(Compiled(), Trainer()),
        partial(Compiled(), 1),
        lowered("/env/site-packages/jax/_src/api.py", lower=print),
    ],
    ids=["a function", "a method", "with arguments", "of pmap"],
)
def test_what_jax_compiled_is_known_by_its_type(calls, function):
    assert calls._of_new(code_of(), 0, function) is not None


class Proxy:
    """Whoever asks it for anything runs the program's code."""

    def __getattr__(self, name):
        raise AssertionError(name)

    def __call__(self):
        pass


@pytest.mark.parametrize(
    "function",
    [len, PjitFunction(), Proxy(), lowered("/home/me/train.py", lower=print), lowered(LIBRARY)],
    ids=["built in", "of that name", "a proxy", "the program's own", "an ordinary one of jax"],
)
def test_nothing_else_is(calls, function):
    assert calls._of_new(code_of(), 0, function) is None


def test_places_in_jax_itself_are_none(calls):
    inner = code_of(file="/env/site-packages/jax/_src/numpy/lax_numpy.py")
    assert calls._of_new(inner, 0, Compiled()) is None
    beside = code_of(file="/env/site-packages/jaxtyping/_decorator.py")
    assert calls._of_new(beside, 0, Compiled()) is not None


def test_functions_at_one_place_are_told_apart_until_they_are_many(calls):
    code, functions = code_of(), [Compiled(str(n)) for n in range(MOST_FUNCTIONS + 4)]
    for _ in range(2):
        for function in functions:
            calls._of_new(code, 4, function).append(1)
    assert [len(ns) for ns in calls.times_ns.values()] == [2] * MOST_FUNCTIONS + [8]


def test_what_is_called_too_often_is_left_alone(calls):
    """In a second 19,000 at one place, and ten a second at another, which remains."""
    often, rarely = code_of(), code_of("1")
    calls._of_new(often, 0, Compiled()).extend(range(19_000))
    step = Compiled()
    calls._of_new(rarely, 0, step).extend(range(10))
    calls._looked_ns = 0
    calls._look(1_000_000_000)
    assert [calls.places[key].code for key in calls.times_ns] == [rarely]
    assert calls._of_new(often, 0, Compiled()) is None
    assert len(calls._of_new(rarely, 0, step)) == 10


def test_as_many_as_cost_nothing_stay(calls):
    calls._of_new(code_of(), 0, Compiled()).extend(range(9_000))
    calls._looked_ns = 0
    calls._look(1_000_000_000)
    assert len(calls.times_ns) == 1


def test_when_the_program_is_held_up_is_noted_once_a_time(calls, monkeypatch):
    now = iter((5, 9, 20, 30))
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(now))
    for busy in (True, True, False, False, True, False):
        calls.held_up(now=busy)
    assert calls.busy_ns == [(5, 9), (20, 30)]


def test_an_interpreter_that_cannot_tell_changes_nothing(jax, monkeypatch):
    monkeypatch.delattr(sys, "monitoring", raising=False)
    calls = CompiledCalls()
    calls.begin()
    calls.end()
    assert not calls.times_ns


# As the interpreter tells of them


@pytest.fixture
def hearing(jax):
    calls = CompiledCalls()
    calls.begin()
    yield calls
    calls.end()


LOOP = """
def loop(function, times):
    for n in range(times):
        len("other work")
        function(n)
    return times
"""


@pytest.fixture
def loop():
    """Of its own code: what a tool has ended at a place stays ended there."""
    scope = {}
    exec(compile(LOOP, "/home/me/train.py", "exec"), scope)
    return scope["loop"]


@told
def test_each_call_is_noted_at_its_line(hearing, loop):
    before_ns = time.perf_counter_ns()
    assert loop(Compiled("update"), 7) == 7
    ((key, times_ns),) = hearing.times_ns.items()
    place = hearing.places[key]
    assert (place.function, place.code.co_qualname) == ("update", "loop")
    assert place.line == loop.__code__.co_firstlineno + 3
    assert len(times_ns) == 7
    assert before_ns < times_ns[0] < times_ns[-1] < time.perf_counter_ns()


@told
@pytest.mark.parametrize(
    "call",
    ["f(1)", "f(*(1,))", "f(**{'value': 1})", "partial(f)(1)", "holder.f(1)"],
)
def test_in_whatever_way_it_is_called(hearing, call):
    f = Compiled()
    scope = {"f": f, "partial": partial, "holder": SimpleNamespace(f=f)}
    exec(f"for _ in range(3): {call}", scope)
    assert [len(ns) for ns in hearing.times_ns.values()] == [3]


@told
def test_it_ends_and_leaves_nothing(jax, loop):
    calls = CompiledCalls()
    calls.begin()
    tool = calls._tool.number
    assert sys.monitoring.get_tool(tool) == COMPILED_CALLS
    loop(Compiled(), 3)
    calls.end()
    assert sys.monitoring.get_tool(tool) is None
    loop(Compiled(), 3)
    assert [len(ns) for ns in calls.times_ns.values()] == [3]


@told
def test_without_a_free_tool_it_does_without(jax, loop):
    taken = [tool for tool in NUMBERS if sys.monitoring.get_tool(tool) is None]
    for tool in taken:
        sys.monitoring.use_tool_id(tool, "of the program")
    try:
        calls = CompiledCalls()
        calls.begin()
        loop(Compiled(), 3)
        calls.end()
        assert not calls.times_ns
        assert all(sys.monitoring.get_tool(tool) == "of the program" for tool in taken)
    finally:
        for tool in taken:
            sys.monitoring.free_tool_id(tool)


@told
def test_an_interpreter_that_refuses_is_left_as_it_was(jax, monkeypatch, loop):
    def refuses(tool, events):
        if events:
            raise SystemError("cannot instrument shim code object")

    monkeypatch.setattr(sys.monitoring, "set_events", refuses)
    calls = CompiledCalls()
    calls.begin()
    loop(Compiled(), 3)
    assert not calls.times_ns
    assert all(sys.monitoring.get_tool(tool) is None for tool in NUMBERS)


@told
def test_a_tool_that_the_program_freed_is_not_touched(jax):
    calls = CompiledCalls()
    calls.begin()
    tool = calls._tool.number
    sys.monitoring.free_tool_id(tool)
    sys.monitoring.use_tool_id(tool, "of the program")
    calls.end()
    assert sys.monitoring.get_tool(tool) == "of the program"
    sys.monitoring.free_tool_id(tool)


@told
def test_a_failure_of_ours_never_reaches_the_program(hearing, monkeypatch, loop):
    monkeypatch.setattr(hearing, "_of_new", lambda *given: 1 // 0)
    assert loop(Compiled(), 3) == 3
    assert not hearing.times_ns


@told
def test_another_tool_hears_of_its_events_as_before(hearing, loop):
    heard, monitoring = [], sys.monitoring
    monitoring.use_tool_id(monitoring.COVERAGE_ID, "coverage")
    try:
        monitoring.register_callback(
            monitoring.COVERAGE_ID,
            monitoring.events.CALL,
            lambda code, offset, function, first: heard.append(code) if code is at else None,
        )
        at = loop.__code__
        monitoring.set_local_events(monitoring.COVERAGE_ID, at, monitoring.events.CALL)
        loop(Compiled(), 4)
        monitoring.set_local_events(monitoring.COVERAGE_ID, at, 0)
    finally:
        monitoring.free_tool_id(monitoring.COVERAGE_ID)
    assert len(heard) == 1 + 2 * 4
    assert [len(ns) for ns in hearing.times_ns.values()] == [4]


@told
def test_threads_that_call_while_it_begins_and_ends_are_not_disturbed(jax, loop):
    counts, go = [], threading.Event()

    def work():
        go.wait()
        counts.append(sum(loop(Compiled(), 200) for _ in range(10)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    go.set()
    for _ in range(5):
        calls = CompiledCalls()
        calls.begin()
        loop(Compiled(), 5)
        calls.end()
    for thread in threads:
        thread.join()
    assert counts == [2000] * 4


@told
def test_it_ends_by_itself_where_hooks_see_steps(jax, monkeypatch, loop):
    monkeypatch.setattr(compiled_calls, "FIRST_LOOK_NS", 0)
    seen = []
    calls = CompiledCalls(lambda: bool(seen))
    calls._look_every_ns = 0
    calls.begin()
    seen.append("an annotation")
    loop(Compiled(), 3)
    assert calls._tool is None
    again = CompiledCalls(lambda: True)
    again.begin()
    assert again._tool is None
