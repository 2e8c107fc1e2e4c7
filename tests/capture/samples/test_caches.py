"""Caches of ``functools.lru_cache`` as they are looked for beside a running program."""

import functools
import gc
import sys
import threading

import pytest

from pinchpoint.capture.samples.caches import FEWEST_MISSES, Caches


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    """However much the tests before these have left behind."""
    monkeypatch.setattr("pinchpoint.capture.samples.caches.MOST_BLOCKS", sys.maxsize)
    monkeypatch.setattr("pinchpoint.capture.samples.caches.MOST_CACHES", sys.maxsize)


def test_a_cache_that_misses_is_noted():
    @functools.lru_cache(maxsize=4)
    def squared(number):
        return number * number

    for number in range(FEWEST_MISSES):
        squared(number)
    caches = Caches()
    caches.look()
    (mine,) = [one for one in caches.document() if one["function"] == "squared"]
    assert (mine["misses"], mine["most"], mine["held"]) == (FEWEST_MISSES, 4, 4)


def test_one_that_does_not_know_yet_what_it_wraps_is_left_out():
    half_made = functools._lru_cache_wrapper(len, 8, False, functools._CacheInfo)
    caches = Caches()
    caches.look()
    assert half_made.cache_info().misses == 0


def test_what_another_thread_builds_is_not_held(monkeypatch):
    """A tuple that is known to anyone else cannot be finished: Python raises a SystemError."""

    def held(*_):
        raise AssertionError("all objects are held")

    monkeypatch.setattr(gc, "get_objects", held)
    asked, answered, found = threading.Event(), threading.Event(), Caches()

    def looking():
        asked.wait(5)
        found.look()
        answered.set()

    thread = threading.Thread(target=looking)
    thread.start()

    def numbers():
        asked.set()
        answered.wait(5)
        yield from range(40)

    assert len(tuple(numbers())) == 40
    thread.join()
