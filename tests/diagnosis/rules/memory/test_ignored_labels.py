"""Scores of positions whose labels the loss ignores."""

from dataclasses import replace

import pytest

from device_steps import Work, device_bound
from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_values import IgnoredRows, RunValues

PLACE = ("train.py", 42, "loss")
ROWS, CLASSES, DIM = 4064, 8000, 1024  # 4 sequences of 1024, whose last positions have no label
F32 = "float"


def training(ignored, rows=ROWS):
    scores, hidden, weight = [4096, CLASSES], [4096, DIM], [DIM, CLASSES]
    work = [
        Work("gemm", 2_000, "aten::mm", [hidden, weight], [F32] * 2),
        Work("softmax", 1_000, "aten::_log_softmax", [[4, 1016, CLASSES]], [F32]),
        Work("wgrad", 2_000, "aten::mm", [[CLASSES, 4096], hidden], [F32] * 2),
        Work("dgrad", 2_000, "aten::mm", [scores, [CLASSES, DIM]], [F32] * 2),
        Work("layer", 2_000, "aten::mm", [hidden, [DIM, DIM]], [F32] * 2),
        Work("decay", 900, "aten::mul", [[CLASSES, DIM]], [F32]),
    ]
    losses = (IgnoredRows(PLACE, 1, rows, CLASSES, ignored),)
    values = RunValues(30, 1, True, (), (), 0, (), losses)
    return replace(device_bound(work), run=RunFacts(values=values))


def test_what_is_computed_for_ignored_labels_shrinks_with_them(outcome):
    (found,) = outcome("ignored-labels", training(0.8)).findings
    assert found.summary.startswith("80 % of 4,064 labels are ignored by the loss, yet scores of")
    assert found.cost_ns_per_step == 7_000_000  # products and softmax; no layer, no weights
    assert found.changes[0].flops_left == pytest.approx(0.2)
    assert (found.location.line, found.location.function) == (42, "loss")


@pytest.mark.parametrize(("ignored", "rows"), [(0.05, ROWS), (0.8, 100)])
def test_few_ignored_labels_or_other_scores_are_no_cause(outcome, ignored, rows):
    assert outcome("ignored-labels", training(ignored, rows)).findings == ()
