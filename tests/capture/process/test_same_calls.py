"""Functions that are called again with what they were given before."""

import sys
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch

from pinchpoint.capture.process import same_calls
from pinchpoint.capture.process.contents import MOST_BYTES, Contents, Untold
from pinchpoint.capture.process.hear_calls import hear_calls
from pinchpoint.capture.process.same_calls import FEWEST_STEPS, MOST_CALLS, STEPS, SameCalls


class Pair(NamedTuple):
    one: int
    two: list


def table(n, scale):
    return np.linspace(0, scale, n)


def outer(n):
    return table(n, 1.0) * 2


def new_each_time(n):
    return np.random.default_rng().random(n)


class Counts:
    """Gives something else each time, and is given nothing."""

    def __init__(self):
        self.n, self.kept, self.more = 0, 0, iter(range(1000))

    def next(self):
        return np.full(10, next(self.more)) + np.arange(10)

    def restart(self):
        self.n = 0
        return np.arange(10)

    def table(self):
        self.kept = 10
        return np.arange(self.kept)


def fills(out):
    out += 1
    return out.mean()


def gives_back(out):
    return out


def fails(n):
    if n:
        raise ValueError(n)
    return table(4, 1.0)


def listened(step, *functions, steps=STEPS, note=True):
    """What is noted of these functions by name, after so many steps."""
    same = SameCalls()
    same.begin({(one.__code__,): 1 for one in functions})
    for _ in range(steps):
        step()
        same.step_ends()
    same.end()
    assert sys.getprofile() is None
    return {one["function"][2]: one for one in same.note["functions"]} if note else same.note


@pytest.fixture(autouse=True)
def _all_is_own(monkeypatch):
    monkeypatch.setattr(same_calls, "is_own", lambda file: file == __file__)
    monkeypatch.setattr(same_calls, "MOST_NS", 1 << 62)  # whatever else the machine does


def test_the_same_arguments_again_and_who_passes_them():
    def step():
        for n in (8, 16, 32, 8):
            table(n, 2.0)

    one = listened(step, table)["table"]
    assert (one["calls"], one["told"], one["distinct"], one["new"]) == (24, 24, 3, 0)
    assert (one["later"], one["alike"], one["answers"]) == (20, True, 3)
    assert (one["numbers"], one["varied"]) == (32, True)
    assert one["caller"][2] == "step"
    assert one["caller"][1] == step.__code__.co_firstlineno + 2
    assert one["ns"] > 0


def test_what_answers_otherwise_is_not_alike():
    counts = Counts()

    def step():
        new_each_time(9)
        counts.next()

    found = listened(step, new_each_time, Counts.next)
    assert (found["new_each_time"]["distinct"], found["new_each_time"]["alike"]) == (1, False)
    assert (found["next"]["distinct"], found["next"]["alike"]) == (1, False)


def test_new_arguments_are_new():
    sizes = iter(range(10, 100))
    one = listened(lambda: table(next(sizes), 1.0), table)["table"]
    assert (one["distinct"], one["new"], one["later"]) == (STEPS, STEPS - 1, STEPS - 1)


def test_calls_inside_of_others_are_known():
    found = listened(lambda: outer(50), table, outer)
    rows = list(found)
    assert found["table"]["inside"] == [rows.index("outer")]
    assert found["outer"]["inside"] == []
    assert found["outer"]["ns"] > found["table"]["ns"]


def test_what_changes_or_gives_back_its_arguments_is_not_compared():
    buffer = np.zeros(10)

    def step():
        fills(buffer)
        gives_back(buffer)

    found = listened(step, fills, gives_back)
    assert (found["fills"]["told"], found["fills"]["why"]) == (0, "it changes what it is given")
    assert found["gives_back"]["why"] == "it gives back what it was given"


def test_what_changes_its_object_is_called_for_that():
    counts = Counts()

    def step():
        counts.restart()
        counts.n += 1
        counts.table()

    found = listened(step, Counts.restart, Counts.table)
    assert found["restart"]["why"] == "it changes an object that it is given"
    assert (found["table"]["told"], found["table"]["distinct"]) == (STEPS - 1, 1)


def test_calls_that_fail_leave_nothing_open():
    def step():
        with pytest.raises(ValueError, match="1"):
            fails(1)
        fails(0)

    one = listened(step, fails)["fails"]
    # Before Python 3.12 a call that raises is heard to return nothing.
    assert (one["distinct"], one["alike"]) in ((1, True), (2, True))


def test_more_calls_than_are_compared_are_counted():
    def step():
        for _ in range(MOST_CALLS + 10):
            table(8, 1.0)

    one = listened(step, table)["table"]
    assert one["told"] == MOST_CALLS * STEPS
    assert one["calls"] == (MOST_CALLS + 10) * STEPS


def test_what_is_called_too_often_is_no_longer_heard(monkeypatch):
    monkeypatch.setattr(same_calls, "MOST_COUNTED", 20)

    def step():
        for _ in range(30):
            table(8, 1.0)

    one = listened(step, table)["table"]
    assert one["why"] == "it is called too often to hear of each"
    assert one["untold"] >= 20


def test_from_too_few_steps_nothing_is_said():
    note = listened(lambda: table(9, 1.0), table, steps=FEWEST_STEPS - 1, note=False)
    assert (note["functions"], note["why"]) == ([], "it ended before")


def test_beside_another_profiler_nothing_is_heard():
    if sys.version_info >= (3, 12):
        pytest.skip("the interpreter tells several tools")
    sys.setprofile(lambda *_: None)
    try:
        with pytest.raises(RuntimeError, match="another profiler"):
            hear_calls([table.__code__], lambda _: True, lambda *_: True)
    finally:
        sys.setprofile(None)


def test_functions_that_run_now_or_take_little_are_not_listened_to():
    heard = same_calls._worth_hearing(
        {
            (table.__code__, outer.__code__): 90,
            (fails.__code__,): 1,
            (test_functions_that_run_now_or_take_little_are_not_listened_to.__code__,): 9,
        }
    )
    assert {one.code.co_name for one in heard} == {"table", "outer"}


def words(*values, **how):
    contents = Contents()
    return [contents.of(value, **how).word for value in values]


@pytest.mark.parametrize(
    ("first", "same", "other"),
    [
        (3, 3, 3.0),
        (float("nan"), float("nan"), 0.0),
        ("abc", "abc", b"abc"),
        ([1, (2, 3)], [1, (2, 3)], [1, [2, 3]]),
        (Pair(1, [2]), Pair(1, [2]), Pair(1, [3])),
        ({"a": 1, "b": None}, {"a": 1, "b": None}, {"a": 1, "b": 0}),
        (np.arange(4), np.arange(4), np.arange(4)[::-1]),
        (np.arange(4), np.arange(4), np.arange(4).reshape(2, 2)),
        (np.float32(1), np.float32(1), np.float64(1)),
        (torch.arange(4.0), torch.arange(4.0), torch.arange(4)),
        (
            torch.zeros(3, dtype=torch.bfloat16),
            torch.zeros(3, dtype=torch.bfloat16),
            torch.zeros(3),
        ),
        (torch.ones(2, 3).t(), torch.ones(3, 2), torch.ones(2, 3)),
        (torch.float32, torch.float32, torch.float64),
    ],
)
def test_values_that_hold_the_same_have_the_same_word(first, same, other):
    one, again, another = words(first, same, other)
    assert one == again
    assert one != another


def test_an_array_that_is_written_to_has_another_word():
    x, contents = np.zeros(100_000), Contents()
    before = contents.of(x).word
    x[77] = 1e-300
    assert contents.of(x).word != before


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(MOST_BYTES + 8, np.uint8),
        np.array([None]),
        [0] * 10_000,
    ],
)
def test_what_cannot_be_compared_is_said(value):
    with pytest.raises(Untold):
        Contents().of(value)


def test_of_other_objects_it_counts_which_one_it_is_but_for_answers():
    one, two = Counts(), Counts()
    assert words(one, one)[0] == words(one)[0] != words(two)[0]
    pairs = SimpleNamespace(a=[1]), SimpleNamespace(a=[1])
    assert words(pairs[0], result=True) == words(pairs[1], result=True)  # these hold the same
    with pytest.raises(Untold, match="a range_iterator is not looked into"):
        words(one, result=True)
    with pytest.raises(Untold, match="a function is not looked into"):
        words(outer, result=True)


def test_numbers_next_to_zero_are_counted():
    x = np.ones(10_000, np.float32)
    x[:2_500] = 1e-40
    assert Contents().of([x, np.ones(10_000)]).tiny_ratio == pytest.approx(0.25, abs=0.01)
    assert Contents().of(torch.from_numpy(x)).tiny_ratio == pytest.approx(0.25, abs=0.01)
    assert Contents().of(np.zeros(10_000)).tiny_ratio == 0
