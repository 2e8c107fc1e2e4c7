import pytest

from piecewise_steps import looping
from pinchpoint.analysis.work.piecewise_loops import piecewise_loops


def test_turns_and_what_each_launches():
    loops = piecewise_loops(looping())
    assert [(loop.turns, loop.operators, len(loop.rows)) for loop in loops] == [(20, 2, 40)] * 4
    assert not any(loop.depends for loop in loops)


def test_more_of_a_size_than_the_views_give_comes_from_the_turn_before():
    assert all(loop.depends for loop in piecewise_loops(looping(carried=True)))


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(looping(turns=6), id="few turns"),
        pytest.param(looping(views=False), id="no index differs"),
        pytest.param(looping(layers=True), id="layers"),
    ],
)
def test_other_repeats_are_no_loop(trace):
    assert piecewise_loops(trace) == ()
