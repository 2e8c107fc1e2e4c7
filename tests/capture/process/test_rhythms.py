"""Which of all that comes round is the step; times in milliseconds."""

import pytest

from pinchpoint.capture.process.rhythms import Rhythm, choose

MS = 1_000_000
NOW = 2_000 * MS


def every(ms, depth=0, first=0, last=2_000, count=None):
    """That came every so many milliseconds."""
    times = [at * MS for at in range(first, last + 1, ms)]
    return Rhythm(depth, count or len(times), first * MS, tuple(times[-33:]))


def chosen(*rhythms, since_ms=2_000):
    choice = choose(rhythms, NOW, since_ms * MS)
    return choice.at, choice.soon


def test_of_several_it_is_the_outermost():
    step, chain, inner = every(100, 1), every(50, 2), every(5, 3)
    assert chosen(inner, chain, step) == (2, False)


def test_what_comes_as_often_is_told_apart_by_its_function():
    loop, called_in_it = every(100, depth=1), every(100, depth=2, first=60)
    assert chosen(called_in_it, loop) == (1, False)


def test_what_has_ended_is_none():
    assert chosen(every(100, last=900)) == (None, False)


def test_thousands_in_a_second_are_none():
    often = Rhythm(0, 9_000, 0, tuple(range(NOW - 33 * 100_000, NOW, 100_000)))
    assert chosen(often) == (None, False)


def test_bursts_are_parts_of_something():
    """Ten turns of 1.2 ms each in steps of 100 ms, of which nothing else comes round."""
    times = [(100 * step + 1.2 * turn) * MS for step in range(17, 20) for turn in range(10)]
    burst = Rhythm(2, 200, 0, tuple(map(int, times)))
    assert chosen(burst) == (None, False)
    assert chosen(burst, every(100, 1)) == (1, False)


def test_it_has_to_last():
    new = every(20, first=1_700)
    assert chosen(new) == (None, True)
    assert chosen(new, since_ms=13_000) == (None, False)  # nobody waits for ever


@pytest.mark.parametrize(("since_ms", "at"), [(2_000, None), (13_000, 0)])
def test_what_is_around_it_may_soon_be_known(since_ms, at):
    """Three rounds of 700 ms so far, and each holds seven calls."""
    call, around = every(100, 2), every(700, 1)
    assert chosen(call, around, since_ms=since_ms) == (at, at is None)


def test_long_steps_are_waited_for():
    assert chosen(every(900)) == (None, True)  # three rounds
    assert chosen(every(900, first=1_000)) == (None, False)  # one: who knows


def test_nothing_is_chosen_of_nothing():
    assert chosen() == (None, False)
    assert chosen(Rhythm(0, 1, NOW, (NOW,))) == (None, False)
