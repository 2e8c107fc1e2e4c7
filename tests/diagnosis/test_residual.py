"""Places that no rule explains: after the causes that are named and pay, before generic ones."""

import pytest

from pinchpoint.analysis.replay.prediction import Prediction
from pinchpoint.diagnosis.engine import Ranked, _causes_first, run_ratio
from pinchpoint.diagnosis.finding import Found

MS = 1_000_000


def ranked(id_, saving_ms):
    return Ranked(id_, Found(summary=id_, evidence=()), None, saving_ms * MS)


@pytest.mark.parametrize(
    ("given", "order"),
    [
        pytest.param(
            [("host-hotspot", 9), ("sync-in-loop", 4)],
            ["sync-in-loop", "host-hotspot"],
            id="a cause that wins nearly as much",
        ),
        pytest.param(
            [("host-hotspot", 9), ("sync-in-loop", 2)],
            ["host-hotspot", "sync-in-loop"],
            id="a cause that wins little beside it",
        ),
        pytest.param(
            [("slow-operator", 9), ("launch-bound", 8)],
            ["slow-operator", "launch-bound"],
            id="a generic cause",
        ),
        pytest.param(
            [("slow-operator", 20), ("host-hotspot", 9), ("sync-in-loop", 4)],
            ["slow-operator", "sync-in-loop", "host-hotspot"],
            id="before the one that it is near",
        ),
    ],
)
def test_order(given, order):
    assert [one.id for one in _causes_first([ranked(*of) for of in given])] == order


def test_what_passes_before_the_steps_comes_after_causes_of_the_step():
    compiling = Found(summary="", evidence=(), run_ratio=0.6, beside_steps=True)
    early = Ranked("long-compilation", compiling, None, 0)
    cause = Found(summary="", evidence=())
    step = Ranked("device-copies", cause, Prediction(10 * MS, (9 * MS, 11 * MS), 14 * MS), 4 * MS)
    assert run_ratio(early, [early, step]) == 0
    assert run_ratio(early, [early]) == 0.6


@pytest.mark.parametrize(("won_ms", "goes_first"), [(1, True), (7, False)])
def test_a_small_part_of_the_run_beside_a_cause_of_most_of_the_step(won_ms, goes_first):
    """A twentieth of the run, and a tenth or half of each step."""
    setting_up = Ranked(
        "unjitted-operations", Found(summary="", evidence=(), run_ratio=0.05), None, 0
    )
    left = Prediction((14 - won_ms) * MS, (0, 14 * MS), 14 * MS)
    step = Ranked("both-branches", Found(summary="", evidence=()), left, won_ms * MS)
    assert run_ratio(setting_up, [setting_up, step]) == (0.05 if goes_first else 0)
