"""Which of several optimizers, or models, ends a step of the program."""

from pinchpoint.capture.process.step_clock import LOST_AFTER, MOST_OTHERS, MarkingOptimizer


def test_parts_of_a_model_that_are_called_one_by_one_are_one_step():
    """Seventy layers, each once a token: the first one marks each token."""
    layers, marking = [object() for _ in range(70)], MarkingOptimizer()
    marks = [marking.stepped(layer) for _ in range(5) for layer in layers]
    assert [at for at, mark in enumerate(marks) if mark] == [0, 70, 140, 210, 280]


def test_another_one_takes_over_once_it_has_stepped_alone():
    first, second, marking = object(), object(), MarkingOptimizer()
    assert marking.stepped(first)
    marks = [marking.stepped(second) for _ in range(LOST_AFTER + 3)]
    assert marks == [False] * LOST_AFTER + [True] * 3


def test_others_that_are_made_anew_each_time_take_over_some_day():
    kept = [object() for _ in range(MOST_OTHERS + 2)]
    marking = MarkingOptimizer()
    assert [at for at, one in enumerate(kept) if marking.stepped(one)] == [0, MOST_OTHERS + 1]
