"""What the window for names says wins only once others are fixed, where these are not told."""

import pytest

from pinchpoint.analysis.replay.prediction import Prediction
from pinchpoint.diagnosis.engine import Ranked
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.rule import Outcome
from pinchpoint.diagnosis.windows import _on_what_is_told

MS = 1_000_000
# 100 ms today; the others win 8 of them, and this one 6 more.
AFTER = Ranked(
    "non-contiguous-access",
    Found(summary="", evidence=()),
    Prediction(86 * MS, (84 * MS, 98 * MS), 100 * MS),
    6 * MS,
    ("launch-bound",),
)


@pytest.mark.parametrize("answer", ["clear", "smaller"])
def test_what_recording_costs_is_fixed_without_it(answer):
    (one,) = _on_what_is_told([AFTER], {AFTER.id}, [Outcome("launch-bound", answer)])
    assert one.given == ()
    assert one.predicted.step_ns == 94 * MS  # from today's step
    assert one.predicted.range_ns == (92 * MS, 100 * MS)  # and never longer than that


def test_what_is_told_comes_first_as_before():
    told = {AFTER.id, "launch-bound"}
    assert _on_what_is_told([AFTER], told, [Outcome("launch-bound", "found")]) == [AFTER]


def test_what_is_found_and_not_told_leaves_nothing_to_count_from():
    assert _on_what_is_told([AFTER], {AFTER.id}, [Outcome("launch-bound", "covered")]) == []
