"""Who is told of events, and who goes without."""

import sys

import pytest

from fake_monitoring import JUMP, PY_START, Monitoring
from pinchpoint.inside import interpreter_tools
from pinchpoint.inside.interpreter_tools import (
    COMPILED_CALLS,
    LOOPS,
    NUMBERS,
    PARTS,
    SAME_CALLS,
    THREADED_CALLS,
    take,
)

CODE = compile("pass", "/home/me/train.py", "exec")


@pytest.fixture
def monitoring(monkeypatch):
    fake = Monitoring()
    monkeypatch.setattr(sys, "monitoring", fake, raising=False)
    monkeypatch.setattr(interpreter_tools, "_let_go", {})
    return fake


@pytest.fixture
def ended():
    """Parts that had to end, in order."""
    return []


@pytest.fixture
def begin(ended):
    """Begins a part, which notes its end."""
    tools = {}

    def begin(part):
        def end():
            ended.append(part)
            tools[part].end((PY_START,), (CODE,))

        tools[part] = take(part, end)
        return tools[part]

    return begin


def test_each_part_has_a_number_of_its_own(monitoring, begin, ended):
    tools = [begin(part) for part in (THREADED_CALLS, SAME_CALLS, LOOPS)]
    assert sorted(tool.number for tool in tools) == sorted(NUMBERS)
    assert monitoring.tools == {tool.number: tool.part for tool in tools}
    assert ended == []


def test_the_part_that_matters_least_goes_without(monitoring, begin, ended):
    threaded, same, _ = (begin(part) for part in (THREADED_CALLS, SAME_CALLS, LOOPS))
    found = begin(COMPILED_CALLS)
    assert (ended, found.number) == ([THREADED_CALLS], threaded.number)
    assert not threaded.held
    assert same.held
    assert monitoring.tools[found.number] == COMPILED_CALLS


@pytest.mark.parametrize("part", [THREADED_CALLS, SAME_CALLS])
def test_a_part_takes_nothing_from_one_that_matters_more(monitoring, begin, ended, part):
    monitoring.tools = {NUMBERS[0]: "of the program"}
    begin(LOOPS)
    begin(COMPILED_CALLS)
    assert begin(part) is None
    assert ended == []


def test_tools_of_the_program_stay(monitoring, begin, ended):
    own = dict.fromkeys(NUMBERS, "of the program")
    monitoring.tools = dict(own)
    assert [begin(part) for part in PARTS] == [None] * len(PARTS)
    assert monitoring.tools == own
    assert ended == []


def test_a_number_that_is_taken_meanwhile_is_left(monitoring, begin, monkeypatch):
    take_it = monitoring.use_tool_id

    def late(number, name):
        if number == NUMBERS[0]:
            raise ValueError("tool is already in use")
        take_it(number, name)

    monkeypatch.setattr(monitoring, "use_tool_id", late)
    assert begin(LOOPS).number == NUMBERS[1]


def test_at_its_end_nothing_is_asked_any_more(monitoring, begin):
    tool = begin(LOOPS)
    tool.listen(JUMP, print)
    tool.ask(JUMP)
    tool.ask_in(CODE, JUMP)
    assert tool.end((JUMP,), (CODE,))
    assert (monitoring.tools, monitoring.everywhere) == ({}, 0)
    assert (monitoring.heard, monitoring.local) == ({JUMP: None}, {CODE: 0})


def test_a_number_that_the_program_freed_is_not_touched(monitoring, begin):
    tool = begin(LOOPS)
    tool.ask_in(CODE, JUMP)
    monitoring.tools[tool.number] = "of the program"
    assert not tool.held
    assert not tool.end((JUMP,), (CODE,))
    assert monitoring.tools == {tool.number: "of the program"}
    assert monitoring.local == {CODE: JUMP}


def test_one_that_ended_by_itself_is_not_ended_again(monitoring, begin, ended):
    begin(THREADED_CALLS).end((PY_START,))
    for part in (LOOPS, SAME_CALLS, COMPILED_CALLS):
        assert begin(part) is not None
    assert ended == []


def test_an_interpreter_that_cannot_tell_has_none(monkeypatch):
    monkeypatch.delattr(sys, "monitoring", raising=False)
    assert take(LOOPS, lambda: None) is None
