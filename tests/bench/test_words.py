"""Every form of better and worse: less is better and more is better, near 1 and far from it."""

from math import log

import pytest

from pinchpoint.bench.words import improved, in_words, range_in_words, with_range


def _worsening(before, after, better):
    return after / before - 1 if better == "lower" else before / after - 1


@pytest.mark.parametrize(
    ("before", "after", "better", "said"),
    [
        # Less is better: a time.
        (100, 100, "lower", "the same"),
        (100, 100.04, "lower", "the same"),
        (100, 103.1, "lower", "3.1 % worse"),
        (100, 97, "lower", "3.0 % better"),
        (100, 199, "lower", "99.0 % worse"),
        (100, 200, "lower", "2.00 × worse"),
        (10, 142, "lower", "14.2 × worse"),
        (111, 43, "lower", "2.58 × better"),
        (100, 51, "lower", "49.0 % better"),
        (100, 50, "lower", "2.00 × better"),
        (1, 5e6, "lower", "over 1000 × worse"),
        (5e6, 1, "lower", "over 1000 × better"),
        # More is better: a throughput. The percentage is that of the figures beside it.
        (100, 100, "higher", "the same"),
        (33.5, 29.7, "higher", "11.3 % worse"),
        (18.1, 30.0, "higher", "65.7 % better"),
        (18.1, 42.5, "higher", "2.35 × better"),
        (100, 199, "higher", "99.0 % better"),
        (100, 51, "higher", "49.0 % worse"),
        (100, 50, "higher", "2.00 × worse"),
        (100, 10, "higher", "10.0 × worse"),
        (1, 5e6, "higher", "over 1000 × better"),
    ],
)
def test_the_words_are_of_the_figures_beside_them(before, after, better, said):
    assert in_words(_worsening(before, after, better), better) == said


@pytest.mark.parametrize(
    ("low_high", "better", "said"),
    [
        ((-0.446, -0.096), "lower", "9.6 to 44.6 % better"),
        ((0.116, 0.172), "lower", "11.6 to 17.2 % worse"),
        ((-0.021, 0.03), "lower", "2.1 % better to 3.0 % worse"),
        ((-0.75, -0.1), "lower", "10.0 % to 4.00 × better"),
        ((1.5, 13.2), "lower", "2.50 to 14.2 × worse"),
        ((-0.02, 1.5), "lower", "2.0 % better to 2.50 × worse"),
        ((0.25, 1 / 0.6 - 1), "higher", "20.0 to 40.0 % worse"),
        ((1 / 1.5 - 1, 1 / 1.2 - 1), "higher", "20.0 to 50.0 % better"),
        ((0.0, 0.05), "lower", "the same to 5.0 % worse"),
        (None, "lower", "-"),
    ],
)
def test_a_range_has_its_ends_in_the_same_words(low_high, better, said):
    assert range_in_words(low_high, better) == said


def test_a_change_with_its_interval():
    assert with_range(0.144, (0.116, 0.172)) == "14.4 % worse (95 %: 11.6 to 17.2 % worse)"
    assert with_range(-0.5, None) == "2.00 × better"
    assert in_words(None) == "-"


@pytest.mark.parametrize(
    ("worsening", "interval", "said"),
    [
        (1 / 1.22 - 1, (1 / 1.30 - 1, 1 / 1.15 - 1), "improved 1.22 × (95 %: 1.15 to 1.30 ×)"),
        (1 / 2.14 - 1, None, "improved 2.14 ×"),
    ],
)
def test_what_is_better_for_certain_is_said_in_times(worsening, interval, said):
    assert improved(worsening, interval) == said


@pytest.mark.parametrize("better", ["lower", "higher"])
@pytest.mark.parametrize("worsening", [-0.9, -0.5, -0.3, -0.01, 0.01, 0.3, 1.0, 9.0])
def test_no_words_say_more_and_less_at_once(worsening, better):
    said = in_words(worsening, better)
    assert said.endswith("worse" if log(1 + worsening) > 0 else "better")
    assert not {"less", "more", "by", "-", "+"} & set(said.replace(" ", "_").split("_"))
