"""Threads of the program that an exception ends are noted; the program's hook is called."""

import sys
import threading

import pytest

from pinchpoint.capture.process.deaths import MOST_DEATHS, Deaths


@pytest.fixture
def hook():
    """The program's own function of ``threading.excepthook``; what it was told."""
    before, told = threading.excepthook, []
    threading.excepthook = told.append
    yield told
    threading.excepthook = before


@pytest.fixture
def deaths(hook):
    saved = []
    found = Deaths(lambda: saved.append(len(found.first)))
    found.saved = saved
    found.start()
    yield found
    found.stop()


def run(function, name="worker"):
    thread = threading.Thread(target=function, name=name)
    thread.start()
    thread.join()


def fails():
    raise ValueError("shapes do not match\nmore about it")


def reads_json():
    import json

    json.loads("{")


def leaves():
    sys.exit(3)


def test_the_first_line_of_the_exception_and_where(deaths, hook):
    run(fails, "model")
    (first,) = deaths.first
    assert (first["thread"], first["said"]) == ("model", "ValueError: shapes do not match")
    file, line, function = first["place"]
    assert (file.endswith("test_deaths.py"), function) == (True, "fails")
    assert line == fails.__code__.co_firstlineno + 1
    assert [one.exc_type for one in hook] == [ValueError]  # Python does what it would have done
    assert deaths.saved == [1]  # at once: the program may wait for ever from now on


def test_the_place_is_in_the_program_not_in_what_it_calls(deaths):
    run(reads_json)
    assert deaths.first[0]["place"][2] == "reads_json"
    assert deaths.first[0]["said"].startswith("JSONDecodeError: ")


def test_ends_that_are_meant_and_threads_of_ours_are_none(deaths, hook):
    run(leaves)
    run(fails, "pinchpoint-samples")
    assert (deaths.count, len(hook)) == (0, 2)


def test_many_are_counted_and_the_first_told_apart(deaths):
    for number in range(MOST_DEATHS + 3):
        run(fails, f"thread {number}")
    assert (deaths.count, len(deaths.first)) == (MOST_DEATHS + 3, MOST_DEATHS)
    assert deaths.first[0]["thread"] == "thread 0"


def test_a_hook_that_the_program_puts_on_later_stays(deaths):
    def own(about):
        pass

    threading.excepthook = own
    deaths.stop()
    assert threading.excepthook is own
